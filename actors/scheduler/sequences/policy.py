"""The policies of one scheduler: which sequence is planned first, which one is preempted.

Each is a small object. The order is chosen by name when the scheduler starts. A new order is a class, a name in the enum below,
and a line in the table. Policies that choose which cached page is evicted are in actors/pages/eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Values
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the supervisor imports the settings; without numpy it starts 0.2 s faster
    from actors.scheduler.sequences.sequence import Sequence


class AdmissionOrder(Protocol):
    """The order in which sequences are admitted and planned."""

    def key(self, sequence: Sequence) -> tuple[int, ...]:
        """Sort key; the lowest is first. It must be unique and must not change while the sequence lives."""
        ...

    def short_key(self, sequence: Sequence) -> tuple[int, ...]:
        """Sort key of prompts for the part of a step that serves the shortest ones first: as `key`, but the number of tokens
        that are left of the prompt comes before the arrival."""
        ...


class PriorityOrder(AdmissionOrder):
    """By priority (the lowest number first), then by arrival."""

    def key(self, sequence: Sequence) -> tuple[int, ...]:
        return sequence.terms.priority, sequence.number

    def short_key(self, sequence: Sequence) -> tuple[int, ...]:
        return sequence.terms.priority, sequence.n_unplanned, sequence.number


class ArrivalOrder(AdmissionOrder):
    """By arrival alone; the priorities that clients ask for are ignored."""

    def key(self, sequence: Sequence) -> tuple[int, ...]:
        return (sequence.number,)

    def short_key(self, sequence: Sequence) -> tuple[int, ...]:
        return sequence.n_unplanned, sequence.number


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


class OrderName(Enum):
    """The values of `scheduler.order`."""

    PRIORITY = "priority"
    ARRIVAL = "arrival"


_ORDERS: Mapping[OrderName, Callable[[], AdmissionOrder]] = {
    OrderName.PRIORITY: PriorityOrder,
    OrderName.ARRIVAL: ArrivalOrder,
}


def make_order(name: OrderName) -> AdmissionOrder:
    """The admission order with this name."""
    return _ORDERS[name]()
