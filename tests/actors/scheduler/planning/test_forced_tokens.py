"""Tokens that a grammar allows alone are planned as drafts, and an answer whose grammar cannot be followed fails."""

from __future__ import annotations

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.rows.advance import Advance
from actors.scheduler.sequences.sequence import Sequence
from messages.generation.grammar import Grammar, GrammarKind
from messages.steps import GrammarFailure, GrammarReport, Result
from messages.wire.arrays import int32s
from tests.support.planner_bench import PlannerBench

_GRAMMAR = Grammar(GrammarKind.REGEX, ".*")


def end_step(bench: PlannerBench, given: dict[int, list[int]], report: GrammarReport | None) -> list[Advance]:
    """The oldest plan's step ends: the tokens that each sequence gets, by its number."""
    planned = bench.plans.popleft()
    tokens = [given[row.sequence.number] for row in planned.sampling]
    result = Result(
        epoch=planned.plan.epoch,
        step=planned.plan.step,
        slots=int32s([row.slot for row in planned.sampling]),
        counts=int32s([len(ids) for ids in tokens]),
        ids=int32s([token for ids in tokens for token in ids]),
        compute_s=1.0,
        grammars=report,
    )
    return list(bench.gang.apply(result))


def forced(sequence: Sequence, position: int, ids: list[int]) -> GrammarReport:
    return GrammarReport(slots=int32s([sequence.slot]), starts=int32s([position]), counts=int32s([len(ids)]), ids=int32s(ids))


def drafts_of(planned: PlannedStep | None) -> list[list[int]]:
    return [row.drafts for row in planned.rows] if planned is not None else []


def test_forced_tokens_are_the_next_drafts_also_without_speculation() -> None:
    bench = PlannerBench({"speculation": False})
    sequence = bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=50)
    bench.plan()
    end_step(bench, {1: [7]}, forced(sequence, 4, [8, 9, 10]))
    assert drafts_of(bench.plan()) == [[8, 9, 10]]
    assert bench.plan() is None, "the result decides the next position"
    (advance,) = end_step(bench, {1: [8, 9, 10, 11]}, None)
    assert (advance.ids, advance.n_accepted) == ([8, 9, 10, 11], 3)
    assert drafts_of(bench.plan()) == [[]]


def test_a_step_that_was_planned_ahead_leaves_the_other_forced_tokens() -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=50)
    bench.plan()
    assert drafts_of(bench.plan()) == [[]], "nothing was known of the grammar"
    end_step(bench, {1: [7]}, forced(sequence, 4, [8, 9, 10]))
    assert bench.plan() is None
    end_step(bench, {1: [8]}, None)
    assert drafts_of(bench.plan()) == [[9, 10]]


def test_forced_tokens_stay_within_the_limits_of_the_answer() -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=4)
    bench.plan()
    end_step(bench, {1: [7]}, forced(sequence, 4, [8, 9, 10, 11, 12]))
    assert drafts_of(bench.plan()) == [[8, 9]]
    (advance,) = end_step(bench, {1: [8, 9, 10]}, None)
    assert advance.ending == "length"


def test_forced_tokens_of_another_text_are_dropped() -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=50)
    bench.plan()
    bench.plan()
    end_step(bench, {1: [7]}, forced(sequence, 4, [8, 9]))
    end_step(bench, {1: [99]}, None)
    assert drafts_of(bench.plan()) == [[]]


def test_other_rows_are_planned_ahead_while_forced_tokens_are_verified() -> None:
    bench = PlannerBench()
    sequence, _ = bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=50), bench.add([1, 2, 4], max_tokens=50)
    bench.plan()
    end_step(bench, {1: [7], 2: [7]}, forced(sequence, 4, [8, 9]))
    assert drafts_of(bench.plan()) == [[8, 9], []]
    assert bench.rows(bench.plan()) == [(2, 4, 1, True)]


def test_without_grammar_drafts_forced_tokens_are_ignored() -> None:
    bench = PlannerBench({"grammar_drafts": False})
    sequence = bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=50)
    bench.plan()
    end_step(bench, {1: [7]}, forced(sequence, 4, [8, 9]))
    assert drafts_of(bench.plan()) == [[]]


def test_an_answer_whose_grammar_fails_gets_no_token_of_that_step() -> None:
    bench = PlannerBench()
    sequence, other = (
        bench.add([1, 2, 3], grammar=_GRAMMAR, max_tokens=50),
        bench.add([1, 2, 4], grammar=_GRAMMAR, max_tokens=50),
    )
    bench.plan()
    report = GrammarReport(failures=[GrammarFailure(slot=sequence.slot, reason="too many items")])
    first, second = end_step(bench, {1: [7], 2: [8]}, report)
    assert (first.ids, first.ending, first.detail) == ([], "failed", "too many items")
    assert (second.ids, second.ending) == ([8], None)
    assert (sequence.n_generated, other.n_generated) == (0, 1)
