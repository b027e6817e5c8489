"""Drafts by prompt lookup: what followed the last time that the present tail of the sequence occurred?

The idea is prompt lookup decoding (A. Saxena, 2023). For each length from longest to shortest match an index maps an n-gram
to the position behind its latest occurrence, so a proposal costs a few dictionary look-ups, whatever the context's length.
Pure and deterministic.
"""

from __future__ import annotations


class NgramProposer:
    """The history of one sequence and its index."""

    def __init__(self, longest_match: int, shortest_match: int) -> None:
        self._sizes = range(longest_match, shortest_match - 1, -1)
        self._tokens: list[int] = []
        self._behind: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in self._sizes}

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: list[int]) -> None:
        """The sequence went on. N-grams are indexed once a token stands behind them."""
        for token in tokens:
            end = len(self._tokens)
            for size in self._sizes:
                if end >= size:
                    self._behind[size][tuple(self._tokens[end - size :])] = end
            self._tokens.append(token)

    def propose(self, max_draft: int) -> list[int]:
        """What followed the latest earlier occurrence of the longest matching tail; none when nothing repeats.

        A continuation that runs into the end of the sequence goes round again: a loop of period p is predicted for ever.
        """
        end = len(self._tokens)
        for size in self._sizes:
            if end >= size:
                behind = self._behind[size].get(tuple(self._tokens[end - size :]))
                if behind is not None:
                    period = end - behind
                    return [self._tokens[behind + index % period] for index in range(max_draft)]
        return []
