"""How many tokens the waiting sequences are expected to take, and how many of them each caller has. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.scheduler.sequences.sequence import Sequence

_FIRST_GUESS_TOKENS = 256.0  # of an answer, while none has ended
_WEIGHT = 0.05  # of each answer that ends, in the mean of their lengths


class QueuedWork:
    """The tokens of the waiting sequences: their known tokens, as if none were cached, and the output that is expected. A
    sequence counts the same number when it comes and when it goes, so the sum is never off."""

    def __init__(self) -> None:
        self.n_tokens = 0
        self._n_by_caller: dict[bytes, int] = {}
        self._mean_tokens = _FIRST_GUESS_TOKENS

    def add(self, sequence: Sequence) -> None:
        """A sequence waits."""
        sequence.queued_tokens = self.left_of(sequence)
        self.n_tokens += sequence.queued_tokens
        caller = sequence.terms.caller
        self._n_by_caller[caller] = self._n_by_caller.get(caller, 0) + 1

    def remove(self, sequence: Sequence) -> None:
        """A sequence does not wait any more."""
        self.n_tokens -= sequence.queued_tokens
        sequence.queued_tokens = 0
        caller = sequence.terms.caller
        self._n_by_caller[caller] -= 1
        if not self._n_by_caller[caller]:
            del self._n_by_caller[caller]

    def is_below_part(self, caller: bytes, n_places: int) -> bool:
        """True if fewer sequences of a caller wait than so many places, divided evenly among the callers that wait and it."""
        n_callers = len(self._n_by_caller) + (caller not in self._n_by_caller)
        return self._n_by_caller.get(caller, 0) * n_callers < n_places

    def ended(self, sequence: Sequence) -> None:
        """A sequence has ended: learn how long answers are."""
        if sequence.n_generated:
            self._mean_tokens += _WEIGHT * (sequence.n_generated - self._mean_tokens)

    def left_of(self, sequence: Sequence) -> int:
        """What a sequence has left: the positions that no step has planned, and the output that is expected of it."""
        return self.left_of_all([sequence])

    def left_of_all(self, sequences: Iterable[Sequence]) -> int:
        """The sum of `left_of`. It reads fields instead of properties, because hundreds may run."""
        mean, n_left = int(self._mean_tokens), 0
        for sequence in sequences:
            n_generated, on_device = sequence.known - sequence.n_prompt, sequence.known + sequence.in_flight
            expected = mean - n_generated if mean > n_generated else 1
            samples = sequence.max_tokens + sequence.n_prompt - on_device
            n_left += max(on_device - sequence.planned, 0) + max(expected if expected < samples else samples, 0)
        return n_left
