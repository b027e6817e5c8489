"""Which sequences are likely to get drafts that are accepted. Pure.

A draft continues known tokens, so it can be used only in a plan that is not sent ahead. While one is likely, plans are short,
and speculation is told of each token. Else a plan grants as many steps as without speculation, and speculation is told of
the new tokens once a plan: this is the probe that finds a text that begins to repeat. A draft that comes then is used if it is
longer than the steps in flight.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.scheduler.sequences.sequence import Sequence

# After the first tokens of an answer, and after an accepted draft, a draft is likely for so many tokens. It is longer than the
# gap between two drafts of a text that is copied with changes, and short beside an answer that repeats nothing.
_LIKELY_TOKENS = 8


class LikelyDrafts:
    """Up to which token of each sequence drafts are likely."""

    def __init__(self) -> None:
        self._until: dict[int, int] = {}  # sequence number -> number of known tokens

    def __len__(self) -> int:
        return len(self._until)

    def verified(self, sequence: Sequence, n_drafts: int, n_accepted: int) -> None:
        """A step has accepted `n_accepted` of `n_drafts` draft tokens, which the sequence has as known tokens now."""
        if n_accepted * 2 >= n_drafts > 0:
            self._until[sequence.number] = sequence.known + _LIKELY_TOKENS

    def end(self, number: int) -> None:
        """The sequence with this number has ended."""
        self._until.pop(number, None)

    def is_likely(self, sequence: Sequence) -> bool:
        """True while a draft of the sequence is likely to be accepted."""
        if not sequence.terms.speculation:
            return False
        return sequence.n_generated < _LIKELY_TOKENS or sequence.known < self._until.get(sequence.number, 0)

    def has_any(self, sequences: Iterable[Sequence]) -> bool:
        """True while that is so for one of these sequences."""
        return any(self.is_likely(sequence) for sequence in sequences)
