"""With several stages, plans in flight have different sequences, and every sequence gets its tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.planning.plan_builder import PlannedStep
from tests.support.planner_bench import PlannerBench


def bench_of(pp: int, n: int, max_tokens: int = 30, **fields: int) -> PlannerBench:
    """A gang with this many stages and `n` sequences that wait."""
    bench = PlannerBench({"pp": pp}, **({"n_slots": 16, "n_pages": 400, "max_step_tokens": 256} | fields))
    for number in range(1, n + 1):
        bench.add([number] * 4, max_tokens=max_tokens)
    return bench


def numbers(planned: PlannedStep) -> set[int]:
    return {row.sequence.number for row in planned.rows}


def fill(bench: PlannerBench) -> None:
    """Plan until enough is in flight."""
    while bench.plan() is not None:
        pass


def test_stages_compute_different_sequences_once_all_decode() -> None:
    bench = bench_of(pp=2, n=8)
    fill(bench)
    for _ in range(4):  # prompts, and then cohorts form
        bench.apply()
        fill(bench)
    for _ in range(10):
        assert len(bench.plans) == 3
        newest = [numbers(planned) for planned in bench.plans]
        assert [len(one) for one in newest] == [4, 4, 4]
        assert newest[0] | newest[1] == set(range(1, 9))
        assert newest[2] == newest[0]
        bench.apply()
        fill(bench)


def test_one_sequence_is_planned_ahead_but_not_further_than_with_one_stage() -> None:
    for pp in (1, 2, 4):
        bench = bench_of(pp, n=1)
        fill(bench)
        bench.apply()
        fill(bench)
        assert [numbers(planned) for planned in bench.plans] == [{1}, {1}]


def test_a_cohort_that_has_lost_its_sequences_gets_others() -> None:
    bench = bench_of(pp=2, n=12)
    fill(bench)
    for _ in range(6):
        bench.apply()
        fill(bench)
    for sequence in [row.sequence for row in bench.plans[0].rows]:
        bench.gang.release(sequence)
    for _ in range(6):
        bench.apply()
        fill(bench)
    assert [len(numbers(planned)) for planned in bench.plans] == [3, 3, 3]
    assert not numbers(bench.plans[0]) & numbers(bench.plans[1])


def test_sequences_without_credit_hold_no_place() -> None:
    bench = bench_of(pp=2, n=8)
    fill(bench)
    for _ in range(6):
        bench.apply()
        fill(bench)
    while bench.plans:
        bench.apply()
    planned = bench.plan(lambda sequence: sequence.number > 6)
    assert planned is not None
    assert numbers(planned) == {7}
    planned = bench.plan(lambda sequence: sequence.number > 6)
    assert planned is not None
    assert numbers(planned) == {8}


def test_chunks_of_a_prompt_follow_each_other_through_the_stages() -> None:
    bench = PlannerBench({"pp": 2}, max_step_tokens=16)
    bench.add(list(range(1, 49)), max_tokens=2)
    fill(bench)
    assert [[(row.start, row.count) for row in planned.rows] for planned in bench.plans] == [[(0, 16)], [(16, 16)], [(32, 16)]]


@given(pp=st.integers(1, 4), n=st.integers(1, 20), n_pages=st.integers(20, 60), data=st.data())
def test_every_answer_gets_all_of_its_tokens(pp: int, n: int, n_pages: int, data: st.DataObject) -> None:
    bench = bench_of(pp, n, max_tokens=data.draw(st.integers(1, 40)), n_pages=n_pages, max_step_tokens=20)
    for _ in range(2000):
        if bench.plan() is None and not bench.plans:
            break
        if bench.plans and data.draw(st.booleans()):
            bench.apply()
    bench.run()
    assert len(bench.ended) == n
