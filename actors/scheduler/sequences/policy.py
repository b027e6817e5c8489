"""The seam of the scheduling policies: who is planned first, who gives way, and what a policy is told.

A policy is one small file in actors/scheduler/policies. Policies that choose which cached page is evicted are in
actors/pages/eviction. Pure.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Values
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the supervisor imports the settings; without numpy it starts 0.2 s faster
    from actors.scheduler.sequences.sequence import Sequence

Key = tuple[float, ...]


class PolicyName(Enum):
    """The values of `scheduler.policy`."""

    FCFS = "fcfs"
    PRIORITY = "priority"
    SLA = "sla"
    FAIR = "fair"


class LateRequests(Enum):
    """The values of `scheduler.late`: what becomes of a waiting sequence that cannot meet its `ttft_ms` or `deadline_ms`."""

    DEMOTE = "demote"
    REFUSE = "refuse"


class StepEstimates(Protocol):
    """What the gang's steps take, in seconds, as far as they have been measured; 0 while nothing is known."""

    def prompt_s(self, n_tokens: int) -> float:
        """The first `n_tokens` of a prompt, with the device for themselves."""
        ...

    def decode_s(self, n_rows: int) -> float:
        """A step of so many sequences that decode."""
        ...


class WaitingQueue(Protocol):
    """The sequences that wait for a slot, in the order of a policy."""

    def add(self, sequence: Sequence) -> None:
        """Add a sequence at its place."""
        ...

    def remove(self, sequence: Sequence, /) -> None:
        """Remove a sequence, which must be in the queue."""
        ...

    def first(self, n: int) -> list[Sequence]:
        """The first `n` sequences in the order of now."""
        ...

    def without(self, first: Values[Sequence]) -> Iterator[Sequence]:
        """All but these, as they are when the first one is taken. The queue may change then."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]: ...


class SortedQueue(list["Sequence"]):
    """A queue in the order of keys that do not change while a sequence waits."""

    def __init__(self, key: Callable[[Sequence], Key]) -> None:
        super().__init__()
        self._key = key

    def add(self, sequence: Sequence) -> None:
        insort(self, sequence, key=self._key)

    def first(self, n: int) -> list[Sequence]:
        return self[:n]

    def without(self, first: Values[Sequence]) -> Iterator[Sequence]:
        known = {sequence.number for sequence in first}
        yield from [sequence for sequence in self if sequence.number not in known]


class VictimChoice(Protocol):
    """Which running sequence gives its pages back and waits, when a decode step finds no page."""

    def choose(self, running: Values[Sequence], has_row: Callable[[Sequence], bool]) -> Sequence | None:
        """The victim, or None when every running sequence is in the plan.

        Args:
            running: in the order of planning.
            has_row: True for a sequence in the plan being made. It must not be chosen, because the plan refers to its pages.
        """
        ...


class LastInOrder(VictimChoice):
    """The last sequence in the order of planning. The first ones are never preempted, so in the end every sequence finishes."""

    def choose(self, running: Values[Sequence], has_row: Callable[[Sequence], bool]) -> Sequence | None:
        return next((sequence for sequence in reversed(running) if not has_row(sequence)), None)


class SchedulingPolicy(Protocol):
    """Orders the sequences of one scheduler. The planner tells a policy what it asks for, so a policy without counters and
    without displacement costs nothing."""

    name: PolicyName
    victims: VictimChoice = LastInOrder()
    n_late = 0  # sequences that could not meet their terms when they arrived, or while they waited
    counts = False  # `planned` must be called with each plan
    displaces = False  # `victim_for` may name a running sequence

    def key(self, sequence: Sequence) -> Key:
        """Sort key of now; the lowest is first. It must be unique."""
        ...

    def short_key(self, sequence: Sequence) -> Key:
        """Sort key of prompts for the part of a step that serves the shortest ones first: as `key`, but the number of tokens
        that are left of the prompt comes before the arrival."""
        ...

    def running_key(self, sequence: Sequence) -> Key:
        """Sort key of the running queue. It must be unique and must not change while the sequence runs."""
        return self.key(sequence)

    def make_queue(self) -> WaitingQueue:
        """An empty waiting queue. The order of `key` is enough where keys do not change while sequences wait."""
        return SortedQueue(self.key)

    def arrived(self, sequence: Sequence) -> None:
        """A new sequence is about to wait. Its timeline says when it arrived."""

    def ended(self, sequence: Sequence) -> None:
        """A sequence has ended, of whatever reason."""

    def measured_by(self, estimates: StepEstimates) -> None:
        """A gang has begun, and its steps are measured there."""

    def take_late(self) -> list[Sequence]:
        """The waiting sequences that have turned out to be late since the last call."""
        return []

    def started(self, sequence: Sequence) -> None:
        """A sequence has got a slot."""

    def stopped(self, sequence: Sequence) -> None:
        """A sequence has left its slot."""

    def planned(self, sequences: Values[Sequence], counts: Values[int], n_more: int) -> None:
        """A plan has a row of so many positions for each of these sequences, and grants `n_more` steps after the first one.
        Called only if `counts`."""

    def victim_for(self, waiting: Sequence, running: Values[Sequence], may_give: Callable[[Sequence], bool]) -> Sequence | None:
        """The running sequence that gives its slot to a waiting one, among those that `may_give` it; None: the waiting one goes
        on waiting. Called only if `displaces`."""
        return None

    def awaits_urgent(self) -> bool:
        """True if requests may come that are to be in the very next step: plans are made just in time then, and steps with
        prompts are short (`PromptPace.brief_s`)."""
        return False

    def longest_step_s(self, running: Values[Sequence]) -> float:
        """How long a step with prompts may take for the sake of running answers, in seconds, where the pace of prompts would
        allow more."""
        return math.inf

    def may_hurry(self, prompt: Sequence) -> bool:
        """False if `is_urgent` is False for this prompt and every other sequence."""
        return False

    def is_urgent(self, prompt: Sequence, running: Sequence) -> bool:
        """True if the prompt may keep a running sequence waiting for longer than the pace of prompts allows."""
        return False
