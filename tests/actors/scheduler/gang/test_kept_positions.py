"""What a running sequence keeps when its gang dies: every position whose step has been applied, also those of a partly filled
last page. `PlannerBench` compares what is kept with what the made-up memory holds."""

from __future__ import annotations

import pytest

from actors.scheduler.sequences.sequence import Sequence, State
from messages.drafts import Drafts
from messages.generation.replica_state import ReplicaCondition
from messages.lifecycle.lifecycle import Cause
from messages.wire.arrays import int32s, int64s
from tests.support.planner_bench import PlannerBench, capacity_of, next_token

ONE_PLAN = {"plans_in_flight": 1}


def check_answer(sequence: Sequence) -> None:
    n = sequence.n_prompt
    assert sequence.tokens(n).tolist() == [next_token(sequence, n + index) for index in range(sequence.max_tokens)]


def decoding(bench: PlannerBench, n_prompt: int = 20, max_tokens: int = 40) -> Sequence:
    """A sequence with two plans in flight, whose first tokens are known."""
    sequence = bench.add(range(1, n_prompt + 1), max_tokens)
    bench.plan()
    bench.plan()
    bench.apply()
    bench.plan()
    return sequence


def test_sequences_go_on_with_one_row_of_one_token_each() -> None:
    bench = PlannerBench(max_step_tokens=200)
    sequences = [bench.add(range(number, number + 20 + 5 * number), 40) for number in range(1, 4)]
    for _ in range(3):
        bench.plan()
        bench.plan()
        bench.apply()
    known = [sequence.known for sequence in sequences]
    bench.die()
    assert bench.gang.n_tail_tokens == sum((n - 1) % 16 for n in known) > 0
    planned = bench.plan()
    assert bench.rows(planned) == [(number, n - 1, 1, True) for number, n in enumerate(known, 1)]
    assert planned is not None
    assert [new.slot for new in planned.plan.new] == [0, 1, 2]
    planned = bench.plan()
    assert planned is not None
    assert not planned.plan.new, "they enter once"
    bench.run()
    for sequence in sequences:
        check_answer(sequence)


def test_a_chunk_in_flight_is_computed_again_and_those_before_it_are_not() -> None:
    bench = PlannerBench(max_step_tokens=20)
    sequence = bench.add(range(100), 5)
    for _ in range(2):
        bench.plan()
    bench.apply()
    bench.plan()
    bench.die()
    assert bench.rows(bench.plan()) == [(1, 20, 20, False)]
    bench.run()
    check_answer(sequence)


def test_of_a_lease_the_steps_with_a_result_are_kept() -> None:
    bench = PlannerBench(ONE_PLAN, max_lease_steps=4)
    sequence = bench.add([1, 2, 3], 40)
    bench.plan()
    bench.apply()
    planned = bench.plan()
    assert planned is not None
    assert planned.plan.n_steps == 4
    for index in range(2):
        bench.gang.apply(bench._result(planned, index))
    bench.gang.rank_died("killed", is_last=True)
    assert (sequence.known, sequence.planned, sequence.in_flight) == (6, 5, 0)


def test_rejected_and_unverified_drafts_are_not_kept() -> None:
    bench = PlannerBench(ONE_PLAN)
    sequence = bench.add([1, 2, 3], 20, speculation=True)
    bench.plan()
    bench.apply()
    for ids in ([next_token(sequence, 4), 7, 8], [next_token(sequence, 6), next_token(sequence, 7)]):
        columns = (int64s([1]), int32s([sequence.known]), int32s([len(ids)]), int32s(ids))
        bench.drafts.receive(Drafts(*columns), is_running=lambda number: True)
        bench.plan()
        assert sequence.is_verifying
        if sequence.known == 4:
            bench.apply()
    bench.lose_gang()
    assert (sequence.known, sequence.planned, sequence.is_verifying) == (6, 5, False)
    bench.succeed()
    assert bench.rows(bench.plan()) == [(1, 5, 1, True)], "without drafts, so that a captured step fits"
    bench.run()
    check_answer(sequence)


def test_a_page_that_another_sequence_had_in_flight_is_not_kept() -> None:
    bench = PlannerBench()
    first, second = bench.add(range(40), 9), bench.add(range(40), 9)
    bench.plan()
    bench.plan()
    assert second.pages[:2] == first.pages[:2]
    bench.lose_gang()
    assert (first.planned, second.planned) == (0, 0)
    assert second.pages == []
    bench.succeed()
    bench.run()
    for sequence in (first, second):
        check_answer(sequence)


def test_a_page_that_another_sequence_has_completed_is_kept_by_both() -> None:
    bench = PlannerBench()
    first, second = bench.add(range(40), 30), bench.add(range(40), 30)
    bench.plan()
    bench.plan()
    bench.apply()
    bench.apply()
    bench.die()
    assert second.pages[:2] == first.pages[:2]
    assert bench.rows(bench.plan()) == [(1, 41, 1, True), (2, 40, 1, True)]
    bench.run()
    for sequence in (first, second):
        check_answer(sequence)


@pytest.mark.parametrize("n_deaths", [2, 5])
def test_deaths_during_the_first_step_of_the_next_gang_cost_nothing_more(n_deaths: int) -> None:
    bench = PlannerBench()
    sequence = decoding(bench)
    for _ in range(n_deaths):
        bench.lose_gang()
        bench.gang.rank_died("gang", is_last=True)  # its sibling
        bench.succeed()
        assert bench.rows(bench.plan()) == [(1, sequence.known - 1, 1, True)]
    bench.run()
    check_answer(sequence)


@pytest.mark.parametrize(("cause", "generation"), [("killed", 2), ("crashed", 2), ("hung", 2), ("faulted", 2)])
def test_nothing_is_kept_in_other_memory(cause: Cause, generation: int) -> None:
    bench = PlannerBench()
    sequence = decoding(bench)
    bench.die(generation, cause)
    assert bench.gang.n_tail_tokens == 0
    assert sequence.state is State.WAITING
    bench.gang.probation.clear_all()
    bench.run()
    check_answer(sequence)


@pytest.mark.parametrize("causes", [("killed", "crashed"), ("crashed", "killed"), ("gang", "faulted")])
def test_nothing_is_kept_if_one_rank_died_of_its_device(causes: tuple[Cause, Cause]) -> None:
    bench = PlannerBench()
    sequence = decoding(bench)
    bench.gang.rank_died(causes[0], is_last=False)
    bench.gang.rank_died(causes[1], is_last=True)
    assert bench.gang.ledger is None
    assert (sequence.state, sequence.pages) == (State.WAITING, [])


def test_after_a_death_that_a_computation_may_have_caused_the_canary_has_the_pages() -> None:
    bench = PlannerBench(n_pages=4)
    sequence = decoding(bench, n_prompt=50, max_tokens=14)
    assert len(sequence.pages) == 4
    bench.die(cause="out_of_memory")  # the memory is intact all the same
    assert sequence.state is State.WAITING
    assert bench.gang.n_tail_tokens == 0
    assert bench.gang.condition is not ReplicaCondition.UP
    planned = bench.gang.plan(lambda sequence: True, None)
    assert planned is not None
    assert planned.rows[0].sequence is not sequence


def test_what_ends_while_there_is_no_gang_gives_its_pages_back() -> None:
    bench = PlannerBench()
    sequence = decoding(bench)
    other = bench.add([9] * 20, 5)
    bench.lose_gang()
    bench.gang.release(sequence)
    assert bench.gang.ledger is not None
    statistics = bench.gang.ledger.statistics()
    assert (statistics.held, statistics.cached) == (0, 1)  # the full page can be found again, the tail cannot
    bench.succeed()
    bench.run()
    check_answer(other)


def test_a_gang_with_fewer_slots_takes_the_sequences_in_those_that_it_has() -> None:
    bench = PlannerBench()
    first, second = decoding(bench), decoding(bench)
    bench.lose_gang()
    bench.capacity = capacity_of(n_slots=1)
    bench.succeed()
    assert (first.state, second.state) == (State.RUNNING, State.WAITING)
    bench.run()
    for sequence in (first, second):
        check_answer(sequence)


def test_a_sequence_without_credit_enters_with_the_others() -> None:
    bench = PlannerBench(ONE_PLAN)
    first, second = decoding(bench), decoding(bench)
    bench.die()
    planned = bench.plan(lambda sequence: sequence is second)
    assert planned is not None
    assert len(planned.plan.new) == 2
    assert [row.sequence for row in planned.rows] == [second]
    bench.run()
    for sequence in (first, second):
        check_answer(sequence)


def test_one_that_must_give_its_pages_away_in_the_first_plan_does_not_enter() -> None:
    bench = PlannerBench(ONE_PLAN, n_pages=5)
    first = bench.add(range(43), 30)
    second = bench.add(range(50, 64), 30)
    while first.planned < 48:
        bench.plan()
        bench.apply()
    assert (len(first.pages), len(second.pages)) == (3, 2)
    bench.die()
    planned = bench.plan()
    assert bench.rows(planned) == [(1, 48, 1, True)]
    assert planned is not None
    assert [new.slot for new in planned.plan.new] == [first.slot]
    assert second.state is State.WAITING
    bench.run()
    for sequence in (first, second):
        check_answer(sequence)
