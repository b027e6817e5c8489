"""Policies by name: every name of the settings makes one; admission orders; the choice of a victim."""

from __future__ import annotations

import msgspec
import pytest

from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.lfu import LfuEviction
from actors.scheduler.policies.choice import make_queues
from actors.scheduler.policies.fcfs import FcfsPolicy
from actors.scheduler.policies.priority import PriorityPolicy
from actors.scheduler.sequences.policy import LastInOrder, PolicyName, SchedulingPolicy
from actors.scheduler.settings import SchedulerSettings
from tests.support.planner_bench import sequence_of


def test_every_name_of_the_settings_makes_a_policy() -> None:
    for name in EvictionName:
        assert len(make_eviction(name, 8)) == 0
    for name in PolicyName:
        settings = msgspec.convert({"policy": name.value}, SchedulerSettings)
        assert make_queues(settings, lambda: 0.0).policy.name is name
    assert isinstance(make_eviction(msgspec.convert({"eviction": "lfu"}, SchedulerSettings).eviction, 8), LfuEviction)


@pytest.mark.parametrize(("policy", "expected"), [(PriorityPolicy(), [2, 0, 1]), (FcfsPolicy(), [0, 1, 2])])
def test_orders(policy: SchedulingPolicy, expected: list[int]) -> None:
    sequences = [sequence_of(number, priority=priority) for number, priority in enumerate([1, 1, 0])]
    assert [sequence.number for sequence in sorted(sequences, key=policy.key)] == expected


def test_the_victim_is_the_last_one_without_a_row() -> None:
    running = [sequence_of(number) for number in range(4)]
    planned = {3, 2}
    assert LastInOrder().choose(running, lambda sequence: sequence.number in planned) is running[1]
    assert LastInOrder().choose(running, lambda sequence: True) is None
    assert LastInOrder().choose([], lambda sequence: False) is None
