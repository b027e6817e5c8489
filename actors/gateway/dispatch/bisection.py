"""Finds the sequence that faults its scheduler, by halves, so that it is alone when it strikes. Pure.

    two deaths of a scheduler without a new token between them ---> all that were with it are suspects
    half of the suspects is tried: only they go to a scheduler; everybody else waits, or runs at another replica
        the scheduler dies        -> the others are acquitted; the half is halved
        all of the half get on    -> the half is acquitted; the rest is halved
    one that was alone with a scheduler at two deaths is condemned

A scheduler plans for all sequences together, so its own error names no sequence. n sequences need about log2(n) deaths.
"""

from __future__ import annotations

from actors.gateway.requests.request import GrowingSequence

_LOSSES_TO_SUSPICION = 2
_DEATHS_ALONE = 2


class Bisection:
    """The suspects of one gateway. It is active from the second death until every suspect is acquitted or condemned."""

    def __init__(self) -> None:
        self._suspects: list[GrowingSequence] = []
        self._trial: dict[int, GrowingSequence] = {}  # by key
        self._deaths_alone: dict[int, int] = {}  # by key

    @property
    def is_active(self) -> bool:
        """True while only the sequences on trial may go to the scheduler that they are tried with."""
        return bool(self._trial)

    def holds(self, sequence: GrowingSequence) -> bool:
        """True if this sequence is on trial now."""
        return sequence.key in self._trial

    @property
    def schedulers(self) -> set[str]:
        """The schedulers at which sequences are on trial; no other sequence may go there."""
        return {sequence.scheduler for sequence in self._trial.values() if sequence.attempt}

    def scheduler_died(self, lost: list[GrowingSequence]) -> tuple[GrowingSequence, int] | None:
        """A scheduler died by its own error. `lost`: the sequences that it had confirmed; their losses are counted already.

        Returns: the sequence to condemn and the number of deaths with it alone, or None.
        """
        tried = [sequence for sequence in lost if self.holds(sequence)]
        if len(lost) == len(tried) == 1 and (condemned := self._strike(tried[0])) is not None:
            self._suspects = [sequence for sequence in self._suspects if sequence is not tried[0]]
            self._begin_trial()
            return condemned
        stuck = [sequence for sequence in lost if sequence.n_losses >= _LOSSES_TO_SUSPICION]
        if stuck:
            self._suspects = [sequence for sequence in stuck if self.holds(sequence)] or stuck
            self._begin_trial()
        return None

    def advance(self) -> bool:
        """Sequences have new tokens or have ended. Returns True if others may be submitted now."""
        if not all(sequence.n_losses == 0 or sequence.ended is not None for sequence in self._trial.values()):
            return False
        self._suspects = [sequence for sequence in self._suspects if not self.holds(sequence)]
        self._begin_trial()
        return True

    def _strike(self, sequence: GrowingSequence) -> tuple[GrowingSequence, int] | None:
        n_deaths = self._deaths_alone.get(sequence.key, 0) + 1
        self._deaths_alone[sequence.key] = n_deaths
        return (sequence, n_deaths) if n_deaths >= _DEATHS_ALONE else None

    def _begin_trial(self) -> None:
        """Try the first half of the suspects."""
        self._suspects = [sequence for sequence in self._suspects if sequence.ended is None]
        half = self._suspects[: (len(self._suspects) + 1) // 2]
        self._trial = {sequence.key: sequence for sequence in half}
        known = {sequence.key for sequence in self._suspects}
        self._deaths_alone = {key: n for key, n in self._deaths_alone.items() if key in known}
