"""Drafts by prompt lookup: the tokens that followed the last earlier occurrence of the sequence's final n-gram.

The idea is prompt lookup decoding (A. Saxena, 2023). For each n-gram size an index maps an n-gram to the position after its
latest occurrence, so a proposal costs a few dictionary look-ups, whatever the length of the context. Pure and deterministic.
"""

from __future__ import annotations


class NgramProposer:
    """The tokens of one sequence and their index."""

    def __init__(self, longest_match: int, shortest_match: int) -> None:
        """N-grams of `shortest_match` to `longest_match` tokens are looked up, the longest first."""
        self._sizes = range(longest_match, shortest_match - 1, -1)
        self._tokens: list[int] = []
        self._next_of: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in self._sizes}  # size -> n-gram -> position

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: list[int]) -> None:
        """Add tokens to the sequence. An n-gram is indexed when the token after it is known."""
        for token in tokens:
            end = len(self._tokens)
            for size in self._sizes:
                if end >= size:
                    self._next_of[size][tuple(self._tokens[end - size :])] = end
            self._tokens.append(token)

    def propose(self, max_draft: int) -> list[int]:
        """The `max_draft` ids after the latest earlier occurrence of the longest n-gram that ends the sequence; none when
        nothing repeats.

        If the earlier continuation reaches the end of the sequence, it is repeated from its start: a loop goes on as a loop.
        """
        end = len(self._tokens)
        for size in self._sizes:
            if end >= size:
                start = self._next_of[size].get(tuple(self._tokens[end - size :]))
                if start is not None:
                    period = end - start
                    return [self._tokens[start + index % period] for index in range(max_draft)]
        return []
