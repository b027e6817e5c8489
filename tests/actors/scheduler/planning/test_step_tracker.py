"""Epochs and steps in flight: what is stale, what is refused, and where a sequence ends."""

from __future__ import annotations

import msgspec
import pytest

from actors.scheduler.planning.plan_builder import PlannedStep
from messages.steps import GrammarReport, Result
from messages.wire.arrays import int32s
from tests.support.planner_bench import PlannerBench, next_token


def result_of(planned: PlannedStep, ids: list[int], step: int | None = None, epoch: int | None = None) -> Result:
    """One row's result: these tokens."""
    return Result(
        epoch=planned.plan.epoch if epoch is None else epoch,
        step=planned.plan.step if step is None else step,
        slots=int32s([row.slot for row in planned.sampling]),
        counts=int32s([len(ids)]),
        ids=int32s(ids),
        compute_s=0.0,
    )


def planned_by(bench: PlannerBench) -> PlannedStep:
    planned = bench.plan()
    assert planned is not None
    return planned


def test_the_epoch_rises_once_for_each_gang_and_not_when_one_is_lost() -> None:
    bench = PlannerBench()
    tracker = bench.gang.tracker
    assert tracker.epoch == 1
    bench.gang.rank_died("crashed", is_last=False)
    bench.gang.rank_died("crashed", is_last=True)
    assert tracker.epoch == 1
    assert not tracker.is_current(1)
    assert bench.gang.begin_epoch().epoch == 2
    assert tracker.is_current(2)
    assert not tracker.is_current(1)


def test_a_gang_that_loses_a_rank_before_it_has_answered_is_not_alive() -> None:
    bench = PlannerBench()
    bench.gang.rank_died("killed", is_last=True)
    epoch = bench.gang.begin_epoch().epoch
    bench.gang.rank_died("killed", is_last=False)
    assert not bench.gang.tracker.is_current(epoch)  # so a Capacity that comes now is dropped
    assert not bench.gang.is_alive


def test_results_of_another_epoch_change_nothing() -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3])
    planned = planned_by(bench)
    assert not list(bench.gang.tracker.apply(result_of(planned, [7], epoch=0)))
    bench.gang.tracker.end_epoch()
    assert not list(bench.gang.tracker.apply(result_of(planned, [7])))
    assert sequence.n_generated == 0


def test_a_result_that_nobody_waits_for_is_an_error() -> None:
    bench = PlannerBench()
    with pytest.raises(ValueError, match="step: expected None, got 9"):
        bench.gang.tracker.apply(Result(epoch=1, step=9, slots=int32s([]), counts=int32s([]), ids=int32s([]), compute_s=0.0))
    bench.add([1, 2, 3])
    planned = planned_by(bench)
    with pytest.raises(ValueError, match="step: expected 1, got 2"):
        bench.gang.tracker.apply(result_of(planned, [7], step=2))
    wrong = Result(epoch=1, step=1, slots=int32s([0, 1]), counts=int32s([1, 1]), ids=int32s([7, 7]), compute_s=0.0)
    with pytest.raises(ValueError, match="slots: expected 1 rows, got 2"):
        bench.gang.tracker.apply(wrong)


def test_the_result_for_a_cancelled_sequence_is_void() -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3])
    planned_by(bench)
    bench.gang.release(sequence)
    assert bench.apply() == []
    assert sequence.n_generated == 0


@pytest.mark.parametrize(
    ("stop_tokens", "max_tokens", "kept", "ending"),
    [
        ([], 10, 4, None),
        ([8], 10, 2, "stop"),
        ([8, 9], 10, 2, "stop"),
        ([], 3, 3, "length"),
        ([9], 3, 3, "stop"),
        ([9], 2, 2, "length"),
    ],
)
def test_tokens_count_up_to_the_first_stop_token_or_the_limit(
    stop_tokens: list[int], max_tokens: int, kept: int, ending: str | None
) -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3], max_tokens=max_tokens, stop_tokens=stop_tokens)
    planned = planned_by(bench)
    (advance,) = bench.gang.tracker.apply(result_of(planned, [7, 8, 9, 7]))
    assert (advance.ids, advance.ending) == ([7, 8, 9, 7][:kept], ending)
    assert sequence.tokens(3).tolist() == advance.ids


@pytest.mark.parametrize("report", [None, GrammarReport()])
def test_single_tokens_count_alike_with_and_without_a_report_of_grammars(report: GrammarReport | None) -> None:
    bench = PlannerBench()
    limits: list[tuple[int, list[int]]] = [(10, [9]), (1, [8]), (10, []), (1, [])]
    sequences = [bench.add([1, 2, 3 + n], max_tokens=most, stop_tokens=stop) for n, (most, stop) in enumerate(limits)]
    planned = planned_by(bench)
    bench.gang.release(sequences[2])
    ids = [7, 8, 6, 5]
    single = msgspec.structs.replace(result_of(planned, ids), counts=int32s([1] * len(ids)), grammars=report)
    advances = bench.gang.tracker.apply(single)
    assert [(one.row.sequence, one.first, one.ids, one.offset, one.ending) for one in advances] == [
        (sequences[0], 0, [7], 0, None),
        (sequences[1], 0, [8], 1, "stop"),
        (sequences[3], 0, [5], 3, "length"),
    ]
    assert [one.tokens(3).tolist() for one in sequences] == [[7], [8], [], [5]]
    assert [one.in_flight for one in sequences] == [0] * len(ids)


def test_a_row_without_a_token_gets_none() -> None:
    bench = PlannerBench()
    first, second = bench.add([1, 2, 3]), bench.add([1, 2, 4])
    planned = planned_by(bench)
    bench.gang.tracker.apply(msgspec.structs.replace(result_of(planned, [7]), counts=int32s([1, 0])))
    assert (first.n_generated, second.n_generated) == (1, 0)


def test_steps_of_a_lease_are_steps_in_flight_of_one_plan() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, max_lease_steps=4)
    sequence = bench.add([1, 2, 3], max_tokens=5)
    bench.plan()
    bench.apply()
    assert planned_by(bench).plan.n_steps == 4
    tracker = bench.gang.tracker
    assert (tracker.plans_in_flight, tracker.ordinary) == (1, (1, 4, False))
    assert [end for _, end in tracker.in_flight()] == [4, 5, 6, 7]
    assert tracker.of_step(99) == []
    planned, firsts = bench.plans[0], []
    for index in range(4):
        (advance,) = tracker.apply(result_of(planned, [next_token(sequence, 4 + index)], planned.plan.step + index))
        firsts.append(advance.is_first_of_plan)
    assert firsts == [True, False, False, False]
    assert (tracker.plans_in_flight, tracker.ordinary, tracker.n_done) == (0, (0, 0, False), 5)
    assert sequence.tokens(3).tolist() == [next_token(sequence, 3 + index) for index in range(5)]
