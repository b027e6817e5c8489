"""Remembers which scheduler has which sequence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from actors.gateway.requests.request import GrowingSequence
from messages.generation.logprobs import PromptLogprobs
from messages.generation.sequences import Holder
from messages.ids import replica_of


def holder_for(name: str, pages_by_name: Mapping[str, int]) -> Holder | None:
    """The replica that has more of a prompt than that of the scheduler `name`, which gets it: the one that has most. None if
    there is none.

    Args: pages_by_name: leading pages of the prompt in each living scheduler's cache."""
    best = max(pages_by_name, key=lambda one: (pages_by_name[one], one), default=name)
    if pages_by_name.get(best, 0) <= pages_by_name.get(name, 0):
        return None
    return Holder(replica=replica_of(best), pages=pages_by_name[best])


class AttemptBook:
    """Open submissions (attempts) by number, with their sequences and schedulers. Numbers are unique over all incarnations."""

    def __init__(self, incarnation: int) -> None:
        self._next = (incarnation % (1 << 21)) << 32 | 1
        self._sequence_by_attempt: dict[int, GrowingSequence] = {}
        self._attempts_by_scheduler: dict[str, set[int]] = {}
        self.on_close: Callable[[GrowingSequence], None] = lambda sequence: None  # called before an open attempt is closed

    def open(self, sequence: GrowingSequence, scheduler: str) -> int:
        """Open an attempt for a sequence that has none; returns its number."""
        assert not sequence.attempt, "a sequence has one attempt at a time"
        attempt, self._next = self._next, self._next + 1
        sequence.attempt, sequence.scheduler, sequence.is_taken = attempt, scheduler, False
        sequence.is_recalled = False
        sequence.n_submissions += 1
        self._sequence_by_attempt[attempt] = sequence
        self._attempts_by_scheduler.setdefault(scheduler, set()).add(attempt)
        return attempt

    @property
    def newest(self) -> int:
        """The number of the attempt that was opened last."""
        return self._next - 1

    def find(self, attempt: int) -> GrowingSequence | None:
        """The sequence of an open attempt; None for a closed one, whose late messages are ignored."""
        return self._sequence_by_attempt.get(attempt)

    def add_prompts(self, parts: Iterable[PromptLogprobs]) -> None:
        """Give log probabilities of prompts to the sequences of their attempts. Those of closed ones are ignored."""
        for part in parts:
            if (sequence := self.find(part.owner)) is not None:
                sequence.add_prompt_logprobs(part)

    def sequences(self) -> list[GrowingSequence]:
        """All sequences with an open attempt."""
        return list(self._sequence_by_attempt.values())

    def close(self, sequence: GrowingSequence) -> None:
        """Close the attempt of a sequence, if it has one."""
        if sequence.attempt:
            self.on_close(sequence)
            self._sequence_by_attempt.pop(sequence.attempt, None)
            self._attempts_by_scheduler.get(sequence.scheduler, set()).discard(sequence.attempt)
            sequence.attempt, sequence.scheduler = 0, ""  # `is_taken` stays: `Dispatcher.scheduler_down` reads it

    def close_all_of(self, scheduler: str) -> list[GrowingSequence]:
        """Close all attempts of a scheduler; returns their sequences in the order of submission."""
        lost = self.at(scheduler)
        for sequence in lost:
            self.close(sequence)
        self._attempts_by_scheduler.pop(scheduler, None)
        return lost

    def at(self, scheduler: str) -> list[GrowingSequence]:
        """The sequences with an open attempt at this scheduler, in the order of submission."""
        return [self._sequence_by_attempt[attempt] for attempt in sorted(self._attempts_by_scheduler.get(scheduler, ()))]

    def loads(self, names: Collection[str]) -> dict[str, int]:
        """Number of open attempts at each of these schedulers."""
        return {name: len(self._attempts_by_scheduler.get(name, ())) for name in names}

    def __len__(self) -> int:
        return len(self._sequence_by_attempt)
