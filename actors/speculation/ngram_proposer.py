"""Drafts by prompt lookup: the tokens that followed the last earlier occurrence of the sequence's final n-gram.

The idea is prompt lookup decoding (A. Saxena, 2023). For each n-gram size an index maps an n-gram to the position after its
latest occurrence, so a proposal costs a few dictionary look-ups, whatever the length of the context. Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Callable

NoteMatch = Callable[[int, bool], None]


class NgramProposer:
    """The tokens of one sequence and their index."""

    def __init__(self, longest_match: int, shortest_match: int) -> None:
        """N-grams of `shortest_match` to `longest_match` tokens are looked up, the longest first."""
        self._sizes = range(longest_match, shortest_match - 1, -1)
        self._tokens: list[int] = []
        self._next_of: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in self._sizes}  # size -> n-gram -> position

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: list[int], note: NoteMatch | None = None) -> None:
        """Add tokens to the sequence. An n-gram is indexed when the token after it is known.

        `note(n_matched, is_right)` is called for each token whose last n-gram has occurred before: the length of the longest
        such n-gram, and whether the token is the one that followed it.
        """
        for token in tokens:
            end, is_noted = len(self._tokens), False
            for size in self._sizes:
                if end >= size:
                    index, ngram = self._next_of[size], tuple(self._tokens[end - size :])
                    if note is not None and not is_noted and (start := index.get(ngram)) is not None:
                        note(size, self._tokens[start] == token)
                        is_noted = True
                    index[ngram] = end
            self._tokens.append(token)

    @property
    def n_matched(self) -> int:
        """Tokens of the longest n-gram that ends the sequence and has occurred before; 0 when nothing repeats."""
        return self._match()[0]

    def propose(self, max_draft: int) -> list[int]:
        """The `max_draft` ids after the latest earlier occurrence of the longest n-gram that ends the sequence; none when
        nothing repeats.

        If the earlier continuation reaches the end of the sequence, it is repeated from its start: a loop goes on as a loop.
        """
        n_matched, start = self._match()
        period = len(self._tokens) - start
        return [self._tokens[start + index % period] for index in range(max_draft)] if n_matched else []

    def _match(self) -> tuple[int, int]:
        """(length of the longest n-gram that repeats, position after its latest earlier occurrence); (0, 0) if none does."""
        end = len(self._tokens)
        for size in self._sizes:
            if end >= size:
                start = self._next_of[size].get(tuple(self._tokens[end - size :]))
                if start is not None:
                    return size, start
        return 0, 0
