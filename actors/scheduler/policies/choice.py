"""The scheduling policies by their names in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from actors.scheduler.policies.fcfs import FcfsPolicy
from actors.scheduler.policies.priority import PriorityPolicy
from actors.scheduler.sequences.policy import SchedulingPolicy


class OrderName(Enum):
    """The values of `scheduler.order`."""

    PRIORITY = "priority"
    ARRIVAL = "arrival"


_POLICIES: Mapping[OrderName, Callable[[], SchedulingPolicy]] = {
    OrderName.PRIORITY: PriorityPolicy,
    OrderName.ARRIVAL: FcfsPolicy,
}


def make_policy(name: OrderName) -> SchedulingPolicy:
    """The policy with this name."""
    return _POLICIES[name]()
