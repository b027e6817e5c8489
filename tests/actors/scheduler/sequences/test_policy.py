"""Policies by name: every name of the settings makes one; admission orders; the choice of a victim."""

from __future__ import annotations

import msgspec
import pytest

from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.lfu import LfuEviction
from actors.scheduler.policies.choice import OrderName, make_policy
from actors.scheduler.sequences.policy import LastInOrder
from actors.scheduler.settings import SchedulerSettings
from tests.support.planner_bench import sequence_of


def test_every_name_of_the_settings_makes_a_policy() -> None:
    for name in EvictionName:
        assert len(make_eviction(name, 8)) == 0
    for name in OrderName:
        assert make_policy(name).key(sequence_of(1))
    assert isinstance(make_eviction(msgspec.convert({"eviction": "lfu"}, SchedulerSettings).eviction, 8), LfuEviction)


@pytest.mark.parametrize(("name", "expected"), [(OrderName.PRIORITY, [2, 0, 1]), (OrderName.ARRIVAL, [0, 1, 2])])
def test_orders(name: OrderName, expected: list[int]) -> None:
    sequences = [sequence_of(number, priority=priority) for number, priority in enumerate([1, 1, 0])]
    assert [sequence.number for sequence in sorted(sequences, key=make_policy(name).key)] == expected


def test_the_victim_is_the_last_one_without_a_row() -> None:
    running = [sequence_of(number) for number in range(4)]
    planned = {3, 2}
    assert LastInOrder().choose(running, lambda sequence: sequence.number in planned) is running[1]
    assert LastInOrder().choose(running, lambda sequence: True) is None
    assert LastInOrder().choose([], lambda sequence: False) is None
