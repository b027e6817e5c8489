"""Finds the sequence that faults its scheduler, by halves, so that it is alone when a scheduler dies. Pure.

    two deaths of a scheduler without a new token between them ---> all that were with it are suspects
    half of the suspects is isolated: only they go to a scheduler; everybody else waits, or runs at another replica
        the scheduler dies        -> the others are cleared; the half is halved
        all of the half get on    -> the half is cleared; the rest is halved
    one that was alone with a scheduler at two deaths is quarantined

A scheduler plans for all sequences together, so its own error names no sequence. n sequences need about log2(n) deaths.
"""

from __future__ import annotations

from actors.gateway.requests.request import GrowingSequence

_LOSSES_TO_SUSPICION = 2
_DEATHS_ALONE = 2


class Bisection:
    """The suspects of one gateway. It is active from the second death until every suspect is cleared or quarantined."""

    def __init__(self) -> None:
        self._suspects: list[GrowingSequence] = []
        self._isolated: dict[int, GrowingSequence] = {}  # by key
        self._deaths_alone: dict[int, int] = {}  # by key

    @property
    def is_active(self) -> bool:
        """True while only the isolated sequences may go to the scheduler that has them."""
        return bool(self._isolated)

    def is_isolated(self, sequence: GrowingSequence) -> bool:
        """True if this sequence is isolated now."""
        return sequence.key in self._isolated

    @property
    def schedulers(self) -> set[str]:
        """The schedulers that have the isolated sequences; no other sequence may go there."""
        return {sequence.scheduler for sequence in self._isolated.values() if sequence.attempt}

    def scheduler_died(self, lost: list[GrowingSequence]) -> tuple[GrowingSequence, int] | None:
        """A scheduler died by its own error. `lost`: the sequences that it had confirmed; their losses are counted already.

        Returns: the sequence to quarantine and the number of deaths with it alone, or None.
        """
        isolated = [sequence for sequence in lost if self.is_isolated(sequence)]
        if len(lost) == len(isolated) == 1 and (blamed := self._count_death_alone(isolated[0])) is not None:
            self._suspects = [sequence for sequence in self._suspects if sequence is not isolated[0]]
            self._isolate_half()
            return blamed
        stuck = [sequence for sequence in lost if sequence.n_losses >= _LOSSES_TO_SUSPICION]
        if stuck:
            self._suspects = [sequence for sequence in stuck if self.is_isolated(sequence)] or stuck
            self._isolate_half()
        return None

    def advance(self) -> bool:
        """Sequences have new tokens or have ended. Returns True if others may be submitted now."""
        if not all(sequence.n_losses == 0 or sequence.ended is not None for sequence in self._isolated.values()):
            return False
        self._suspects = [sequence for sequence in self._suspects if not self.is_isolated(sequence)]
        self._isolate_half()
        return True

    def _count_death_alone(self, sequence: GrowingSequence) -> tuple[GrowingSequence, int] | None:
        n_deaths = self._deaths_alone.get(sequence.key, 0) + 1
        self._deaths_alone[sequence.key] = n_deaths
        return (sequence, n_deaths) if n_deaths >= _DEATHS_ALONE else None

    def _isolate_half(self) -> None:
        """Isolate the first half of the suspects."""
        self._suspects = [sequence for sequence in self._suspects if sequence.ended is None]
        half = self._suspects[: (len(self._suspects) + 1) // 2]
        self._isolated = {sequence.key: sequence for sequence in half}
        known = {sequence.key for sequence in self._suspects}
        self._deaths_alone = {key: n for key, n in self._deaths_alone.items() if key in known}
