"""Which replica gets a sequence, and what every replica carries. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from actors.gateway.requests.request import GrowingSequence

_LOAD_FACTOR, _LOAD_SLACK = 2, 8  # a replica this much busier than the idlest one is not worth its cached prefix


def choose_replica(load_by_name: Mapping[str, int], pages_by_name: Mapping[str, int]) -> str:
    """The scheduler for a prompt.

    Longest cached prefix first, then fewest sequences, then the name. A replica with far more sequences than the idlest
    one does not count as a holder of a prefix: prefill again is cheaper than waiting in its queue.

    Args: load_by_name: sequences at each living scheduler (not empty); pages_by_name: leading pages that each one holds.
    """
    ceiling = min(load_by_name.values()) * _LOAD_FACTOR + _LOAD_SLACK

    def rank(name: str) -> tuple[int, int, str]:
        load = load_by_name[name]
        return (-pages_by_name.get(name, 0) if load <= ceiling else 0, load, name)

    return min(load_by_name, key=rank)


class AttemptBook:
    """Which submission belongs to which sequence and scheduler. Numbers are unique over all lives of a gateway."""

    def __init__(self, incarnation: int) -> None:
        self._next = (incarnation % (1 << 21)) << 32 | 1
        self._sequence_by_attempt: dict[int, GrowingSequence] = {}
        self._attempts_by_scheduler: dict[str, set[int]] = {}

    def open(self, sequence: GrowingSequence, scheduler: str) -> int:
        """A new attempt for a sequence without one."""
        assert not sequence.attempt, "one attempt at a time"
        attempt, self._next = self._next, self._next + 1
        sequence.attempt, sequence.scheduler, sequence.is_taken = attempt, scheduler, False
        sequence.n_submissions += 1
        self._sequence_by_attempt[attempt] = sequence
        self._attempts_by_scheduler.setdefault(scheduler, set()).add(attempt)
        return attempt

    def find(self, attempt: int) -> GrowingSequence | None:
        """The sequence of a living attempt; None for one that was closed: its mail is late and means nothing."""
        return self._sequence_by_attempt.get(attempt)

    def sequences(self) -> list[GrowingSequence]:
        """All that some scheduler has."""
        return list(self._sequence_by_attempt.values())

    def close(self, sequence: GrowingSequence) -> None:
        """The attempt is over, however."""
        if sequence.attempt:
            self._sequence_by_attempt.pop(sequence.attempt, None)
            self._attempts_by_scheduler.get(sequence.scheduler, set()).discard(sequence.attempt)
            sequence.attempt, sequence.scheduler = 0, ""  # whether it was taken is still told

    def close_all_of(self, scheduler: str) -> list[GrowingSequence]:
        """A scheduler is gone: closes its attempts, returns their sequences in the order of submission."""
        lost = [self._sequence_by_attempt[attempt] for attempt in sorted(self._attempts_by_scheduler.pop(scheduler, ()))]
        for sequence in lost:
            self.close(sequence)
        return lost

    def loads(self, names: Collection[str]) -> dict[str, int]:
        """Sequences at each of these schedulers."""
        return {name: len(self._attempts_by_scheduler.get(name, ())) for name in names}

    def __len__(self) -> int:
        return len(self._sequence_by_attempt)
