"""The prefix index: longest prefix per scheduler, numbered updates, gaps."""

from __future__ import annotations

from actors.cache_directory.prefix_index import PrefixIndex


def test_longest_prefix_of_each_holder() -> None:
    index = PrefixIndex(100)
    index.replace("scheduler/0", 1, [1, 2, 4])
    index.replace("scheduler/1", 5, [1, 2, 3])
    index.replace("scheduler/2", 1, [2, 3])
    assert index.match([1, 2, 3, 4]) == {"scheduler/0": 2, "scheduler/1": 3}


def test_updates_are_applied_in_order_and_a_gap_is_told() -> None:
    index = PrefixIndex(100)
    assert not index.update("scheduler/0", 1, [1], [])
    index.replace("scheduler/0", 1, [1])
    assert index.update("scheduler/0", 2, [2], [])
    assert index.update("scheduler/0", 3, [], [1])
    assert not index.update("scheduler/0", 5, [9], [])
    assert index.match([2]) == {"scheduler/0": 1}
    assert index.match([1]) == {}


def test_dead_scheduler_is_forgotten_and_the_bound_holds() -> None:
    index = PrefixIndex(3)
    index.replace("scheduler/0", 1, [1, 2, 3, 4, 5])
    assert len(index) == 3
    index.remove_scheduler("scheduler/0")
    assert index.match([1]) == {}
    assert len(index) == 0


def test_a_page_on_the_device_counts_more_than_one_in_a_tier() -> None:
    index = PrefixIndex(100)
    chain = list(range(1, 9))
    index.replace("scheduler/0", 1, chain[:7])
    index.replace("scheduler/1", 1, chain[:2])
    assert index.update("scheduler/1", 2, chain, [], in_tier=True)
    index.replace("scheduler/2", 1, [])
    assert index.update("scheduler/2", 2, chain[:1], [], in_tier=True)
    assert index.match(chain) == {"scheduler/0": 7, "scheduler/1": 6}
    assert index.update("scheduler/1", 3, [], chain[:2], in_tier=True)
    assert index.match(chain) == {"scheduler/0": 7, "scheduler/1": 6}
    assert len(index) == 7 + 2 + 6 + 1
