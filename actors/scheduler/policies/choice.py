"""The scheduling policies by their names in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from actors.scheduler.policies.fair import FairPolicy
from actors.scheduler.policies.fcfs import FcfsPolicy
from actors.scheduler.policies.priority import PriorityPolicy
from actors.scheduler.policies.sla import SlaPolicy
from actors.scheduler.sequences.policy import PolicyName, SchedulingPolicy
from actors.scheduler.sequences.queues import SequenceQueues

if TYPE_CHECKING:
    from actors.scheduler.settings import SchedulerSettings

_Clock = Callable[[], float]
_POLICIES: Mapping[PolicyName, Callable[[SchedulerSettings, _Clock], SchedulingPolicy]] = {
    PolicyName.FCFS: lambda settings, now_s: FcfsPolicy(),
    PolicyName.PRIORITY: lambda settings, now_s: PriorityPolicy(settings.ageing_s, now_s),
    PolicyName.SLA: lambda settings, now_s: SlaPolicy(now_s),
    PolicyName.FAIR: lambda settings, now_s: FairPolicy(),
}


def make_queues(settings: SchedulerSettings, now_s: Callable[[], float]) -> SequenceQueues:
    """Empty queues in the order of the policy that the settings name. now_s: the clock of their timelines."""
    return SequenceQueues(_POLICIES[settings.policy](settings, now_s), now_s=now_s)
