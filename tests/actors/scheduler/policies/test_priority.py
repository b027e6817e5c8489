"""Priorities: order, ageing, and who displaces whom."""

from __future__ import annotations

from actors.scheduler.sequences.sequence import State
from tests.support.planner_bench import PlannerBench


def bench_of(**settings: object) -> PlannerBench:
    return PlannerBench({"plans_in_flight": 1, "policy": "priority", **settings}, n_slots=2)


def steps(bench: PlannerBench, n: int) -> None:
    for _ in range(n):
        bench.plan()
        bench.apply()


def test_a_higher_priority_displaces_the_last_running_one_which_goes_on_at_its_cached_pages() -> None:
    bench = bench_of()
    low = [bench.add([number] * 20, max_tokens=60, priority=5) for number in (1, 2)]
    steps(bench, 40)
    high = bench.add([3] * 4, max_tokens=3, priority=0)
    planned = bench.plan()
    assert planned is not None
    assert planned.n_displaced == 1
    assert [sequence.state for sequence in (*low, high)] == [State.RUNNING, State.WAITING, State.RUNNING]
    bench.apply()
    steps(bench, 6)
    assert high in bench.ended
    assert low[1].state is State.RUNNING
    assert low[1].n_shared * 16 >= 48  # what it had computed is not computed again
    bench.run()
    assert [len(sequence.tokens(20)) for sequence in low] == [60, 60]


def test_an_equal_priority_and_a_sequence_that_has_just_begun_displace_nobody() -> None:
    bench = bench_of()
    for number in (1, 2):
        bench.add([number] * 20, max_tokens=60, priority=5)
    steps(bench, 40)
    bench.add([3] * 4, priority=5)
    steps(bench, 2)
    assert [sequence.number for sequence in bench.queues.waiting] == [3]
    bench.add([4] * 4, max_tokens=60, priority=4)
    steps(bench, 3)
    bench.add([5] * 4, priority=3)
    bench.add([6] * 4, priority=3)
    bench.plan()
    assert [sequence.number for sequence in bench.queues.running] == [5, 4]  # 4 has generated too few tokens in its slot


def test_waiting_counts_like_levels_of_priority() -> None:
    bench = bench_of(ageing_s=10.0)
    old = bench.add([1] * 4, priority=3)
    bench.now_s = 29.0
    higher = bench.add([2] * 4, priority=0)
    assert bench.queues.waiting.first(2) == [higher, old]
    bench.now_s = 31.0
    latest = bench.add([3] * 4, priority=0)
    assert bench.queues.waiting.first(3) == [higher, old, latest]


def test_without_ageing_a_higher_priority_always_comes_first() -> None:
    bench = bench_of(ageing_s=0.0)
    old = bench.add([1] * 4, priority=3)
    bench.now_s = 1e6
    higher = bench.add([2] * 4, priority=2)
    assert bench.queues.waiting.first(2) == [higher, old]


def test_a_prompt_of_a_higher_priority_gets_the_whole_step() -> None:
    bench = PlannerBench({"plans_in_flight": 1, "policy": "priority", "step_s": 0.001}, n_slots=3, n_pages=128)
    for number in (1, 2):
        bench.add([number] * 20, max_tokens=100, priority=5)
    steps(bench, 20)
    bench.add([3] * 100, priority=0)
    assert bench.rows(bench.plan()) == [(3, 0, 64, False)]
    bench.apply()
    assert [row[0] for row in bench.rows(bench.plan())] == [1, 2, 3]  # the others are left out of every second plan at most


def test_a_sequence_that_was_displaced_eight_times_gives_way_only_after_many_tokens() -> None:
    bench = PlannerBench({"plans_in_flight": 1, "policy": "priority"}, n_slots=2, max_length=1024, n_pages=256)
    low = bench.add([1] * 20, max_tokens=900, priority=5)
    bench.add([2] * 20, max_tokens=900, priority=0)
    for number in range(10):
        steps(bench, 18)
        bench.add([100 + number] * 4, max_tokens=1, priority=1)
        steps(bench, 3)
    assert low.n_displaced == 8
    assert low.on_device - low.n_before_stay < 128
    while low.on_device - low.n_before_stay < 128:
        steps(bench, 1)
    bench.add([120] * 4, max_tokens=1, priority=1)
    steps(bench, 1)
    assert low.n_displaced == 9
