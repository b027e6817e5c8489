"""What a plan contains: order of rows, token budget, admission, shared prefixes, preemption, leases, drafts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.choice import EvictionName
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.sequences.policy import PolicyName
from actors.scheduler.sequences.sequence import Sequence, State
from messages.drafts import Drafts
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, int64s
from tests.support.depth import examples
from tests.support.planner_bench import PlannerBench, next_token
from tests.support.scheduler.random_terms import random_terms


def prompt_of(seed: int, n: int) -> list[int]:
    return [(seed * 31 + index * 17) % 90 for index in range(n)]


def hits(bench: PlannerBench) -> int:
    assert bench.gang.ledger is not None
    return bench.gang.ledger.statistics().hits


def test_decodes_come_first_then_prefill_within_the_token_budget() -> None:
    bench = PlannerBench({"plans_in_flight": 1, "step_s": 0.0}, max_step_tokens=20)
    bench.add(prompt_of(1, 4))
    assert bench.rows(bench.plan()) == [(1, 0, 4, True)]
    bench.apply()
    bench.add(prompt_of(2, 50))
    assert bench.rows(bench.plan()) == [(1, 4, 1, True), (2, 0, 19, False)]
    bench.apply()
    bench.add(prompt_of(3, 6))
    assert bench.rows(bench.plan()) == [(1, 5, 1, True), (2, 19, 13, False), (3, 0, 6, True)]
    bench.apply()
    assert bench.rows(bench.plan()) == [(1, 6, 1, True), (3, 6, 1, True), (2, 32, 18, True)]


def test_a_step_is_planned_before_the_tokens_that_it_needs_are_known() -> None:
    bench = PlannerBench()
    bench.add([1, 2, 3])
    assert bench.rows(bench.plan()) == [(1, 0, 3, True)]
    assert bench.rows(bench.plan()) == [(1, 3, 1, True)]
    assert bench.plan() is None  # enough is in flight
    bench.apply()
    assert bench.rows(bench.plan()) == [(1, 4, 1, True)]


def test_no_more_tokens_are_planned_than_may_be_sampled() -> None:
    bench = PlannerBench()
    sequence = bench.add([1, 2, 3], max_tokens=2)
    bench.plan()
    bench.plan()
    bench.apply()
    assert bench.plan() is None
    bench.apply()
    assert bench.ended == [sequence]
    assert sequence.tokens(3).tolist() == [next_token(sequence, 3), next_token(sequence, 4)]


def test_a_sequence_whose_gateway_has_no_credit_is_passed_over() -> None:
    bench = PlannerBench({"plans_in_flight": 1})
    bench.add([1, 2, 3])
    assert bench.plan(lambda sequence: False) is None
    bench.add([4, 5])
    assert bench.rows(bench.plan(lambda sequence: sequence.number == 2)) == [(2, 0, 2, True)]
    bench.apply()
    assert bench.rows(bench.plan()) == [(2, 2, 1, True), (1, 0, 3, True)]
    assert [sequence.number for sequence in bench.queues.running] == [1, 2]


def test_the_first_waiting_sequence_is_not_overtaken_by_a_smaller_one_if_nobody_may_pass() -> None:
    bench = PlannerBench({"plans_in_flight": 1, "most_passed": 0}, n_pages=6)
    bench.add(prompt_of(1, 40), max_tokens=20)  # three pages
    bench.plan()
    bench.apply()
    bench.add(prompt_of(2, 60))  # four pages
    bench.add(prompt_of(3, 2))  # one page
    assert bench.rows(bench.plan()) == [(1, 40, 1, True)]
    assert [sequence.number for sequence in bench.queues.waiting] == [2, 3]


def test_admission_leaves_a_page_for_each_running_sequence() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=3)
    bench.add(prompt_of(1, 10), max_tokens=30)
    bench.plan()
    bench.apply()
    bench.add(prompt_of(2, 17))  # the two pages that are free; the first sequence needs one soon
    assert bench.rows(bench.plan()) == [(1, 10, 1, True)]
    bench.apply()
    bench.add(prompt_of(3, 1), priority=-1)  # one page, and before the second one
    assert bench.rows(bench.plan())[-1] == (3, 0, 1, True)


def test_a_plan_says_what_prefill_reused_tokens_would_have_taken() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=64)
    prefix = prompt_of(1, 160)
    bench.add([*prefix, 91], max_tokens=1)
    bench.run()
    bench.add([*prefix, 92], max_tokens=1)
    planned = bench.plan()
    assert planned is not None
    assert planned.n_cached == 160
    assert planned.saved_s > 0.0
    assert planned.saved_s == pytest.approx(bench.gang.cost.prompt_s(0, 160))


def test_generated_tokens_that_a_successor_finds_again_are_no_cached_tokens_of_the_prompt() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=64)
    tokens = prompt_of(1, 160)
    bench.add([*tokens, 91], max_tokens=1)
    bench.run()
    bench.add([*tokens, 92], n_prompt=16, max_tokens=200)  # its gateway has 145 tokens, and asks again for the rest
    planned = bench.plan()
    assert planned is not None
    assert (planned.plan.new[0].n_prompt, planned.n_cached) == (16, 16)


def test_a_prefix_hit_is_counted_once_however_often_admission_fails() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=6)
    prefix = prompt_of(1, 32)
    bench.add([*prefix, 91], max_tokens=1)
    bench.run()
    assert hits(bench) == 0
    bench.add(prompt_of(2, 40), max_tokens=20)
    bench.plan()
    second = bench.add(prefix + prompt_of(3, 20), max_tokens=2)  # two shared pages, two new ones: too many beside the other
    for _ in range(5):
        bench.apply()
        bench.plan()
    assert second.state is State.WAITING
    assert hits(bench) == 0
    bench.apply()
    bench.gang.release(bench.queues.running[0])
    bench.plan()
    assert second.state is State.RUNNING
    assert (hits(bench), second.n_cached) == (2, 32)


def test_the_last_sequence_gives_its_pages_to_the_first_and_is_computed_again() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=4, n_slots=2)
    first, last = bench.add(prompt_of(1, 16), max_tokens=40), bench.add(prompt_of(2, 15), max_tokens=20)
    n_preempted = 0
    while not bench.ended:
        planned = bench.plan()
        assert planned is not None
        n_preempted += planned.n_preempted
        bench.apply()
        assert first.stay == 0 or first.state is State.ENDED
    assert n_preempted > 0
    bench.run()
    assert {sequence.number for sequence in bench.ended} == {first.number, last.number}
    for sequence in bench.ended:
        n = sequence.n_prompt
        assert sequence.tokens(n).tolist() == [next_token(sequence, n + index) for index in range(sequence.max_tokens)]


def test_a_sequence_that_finds_no_page_and_no_victim_waits_itself() -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=2, n_slots=2)
    first, second = bench.add(prompt_of(1, 15), max_tokens=17), bench.add(prompt_of(2, 15), max_tokens=17)
    bench.run()
    assert {first.n_generated, second.n_generated} == {17}
    assert first.stay == 1
    assert second.stay >= 1


def test_equal_prompts_wait_one_step_for_the_first_and_share_its_pages() -> None:
    bench = PlannerBench({"plans_in_flight": 2})
    for _ in range(3):
        bench.add(prompt_of(1, 33))
    assert bench.rows(bench.plan()) == [(1, 0, 33, True)]
    assert bench.rows(bench.plan()) == [(1, 33, 1, True), (2, 32, 1, True), (3, 32, 1, True)]
    assert [sequence.n_cached for sequence in bench.queues.running] == [0, 32, 32]


def test_without_prefix_reuse_nothing_is_shared() -> None:
    bench = PlannerBench({"prefix_reuse": False})
    for _ in range(2):
        bench.add(prompt_of(1, 20))
    assert bench.rows(bench.plan()) == [(1, 0, 20, True), (2, 0, 20, True)]


def draft(bench: PlannerBench, sequence: Sequence, ids: list[int]) -> None:
    n = len(ids)
    bench.drafts.receive(
        Drafts(sequences=int64s([sequence.number]), starts=int32s([sequence.known]), counts=int32s([n]), ids=int32s(ids)),
        is_running=lambda number: True,
    )


@pytest.mark.parametrize(("max_tokens", "depth", "n_drafts"), [(50, 8, 6), (50, 3, 3), (5, 8, 3)])
def test_drafts_are_verified_as_deep_as_settings_and_length_allow(max_tokens: int, depth: int, n_drafts: int) -> None:
    bench = PlannerBench({"plans_in_flight": 1, "draft_depth": depth})
    sequence = bench.add([1, 2, 3], max_tokens=max_tokens, speculation=True)
    bench.plan()
    bench.apply()
    right = [next_token(sequence, position) for position in range(4, 10)]
    draft(bench, sequence, right)
    assert bench.rows(bench.plan()) == [(1, 3, 1 + n_drafts, True)]
    assert bench.plan() is None  # the next row depends on the result
    bench.apply()
    assert sequence.n_generated == 1 + n_drafts + 1


def test_wrong_drafts_cost_their_row_and_change_no_token() -> None:
    bench = PlannerBench({"plans_in_flight": 1})
    sequence = bench.add([1, 2, 3], max_tokens=4, speculation=True)
    bench.plan()
    bench.apply()
    draft(bench, sequence, [next_token(sequence, 4), 7, 8])
    bench.plan()
    bench.apply()
    assert sequence.tokens(3).tolist() == [next_token(sequence, position) for position in (3, 4, 5)]
    assert sequence.planned == 5  # the rejected positions are computed again
    bench.run()
    assert sequence.tokens(3).tolist() == [next_token(sequence, position) for position in (3, 4, 5, 6)]


def random_bench(rng: random.Random) -> PlannerBench:
    return PlannerBench(
        {
            "plans_in_flight": rng.choice([1, 2, 3]),
            "prefix_reuse": rng.random() < 0.8,
            "eviction": rng.choice([name.value for name in EvictionName]),
            "policy": rng.choice([name.value for name in PolicyName]),
        },
        n_pages=rng.choice([12, 20, 100]),
        n_slots=rng.choice([2, 5, 16]),
        max_step_tokens=rng.choice([8, 30, 200]),
        max_lease_steps=rng.choice([1, 4]),
    )


@given(st.integers(0, 2**32))
@examples(60)
def test_random_loads_keep_every_invariant_and_end_with_the_right_tokens(seed: int) -> None:
    rng = random.Random(seed)
    bench = random_bench(rng)
    everyone, generation = [], 1
    for _ in range(rng.randint(1, 60)):
        match rng.choice(["add", "add", "plan", "plan", "plan", "apply", "apply", "cancel", "die"]):
            case "add":
                first, rest = rng.choice([16, 32, 40]), rng.randint(1, 30)
                prompt = prompt_of(rng.randint(0, 2), first) + prompt_of(rng.randint(5, 50), rest)
                sequence = bench.add(prompt, rng.randint(1, 60), **random_terms(rng), speculation=rng.random() < 0.5)
                everyone.append(sequence)
            case "plan":
                check_plan(bench, bench.plan(lambda sequence: rng.random() < 0.9))
            case "apply" if bench.plans:
                for advance in bench.apply():
                    sequence = advance.row.sequence
                    if sequence.state is State.RUNNING and rng.random() < 0.3:
                        guess = [next_token(sequence, sequence.known + index) + (rng.random() < 0.3) for index in range(4)]
                        draft(bench, sequence, guess)
            case "cancel" if len(bench.queues):
                victim = rng.choice([*bench.queues.waiting, *bench.queues.running])
                bench.gang.release(victim)
                everyone.remove(victim)
            case "die" if rng.random() < 0.3:
                generation += rng.random() < 0.5
                bench.die(generation)
            case _:
                pass
        bench.now_s += rng.random()
        check_state(bench)
    bench.run()
    assert not len(bench.queues)
    bench.gang.audit()
    for sequence in everyone:
        n = sequence.n_prompt
        assert sequence.tokens(n).tolist() == [next_token(sequence, n + index) for index in range(sequence.max_tokens)]


def check_plan(bench: PlannerBench, planned: PlannedStep | None) -> None:
    if planned is None:
        return
    plan = planned.plan
    assert int(plan.row_counts.sum()) <= bench.capacity.max_step_tokens
    slots = plan.row_slots.tolist()
    assert len(set(slots)) == len(slots)
    assert plan.n_steps <= bench.capacity.max_lease_steps


def check_state(bench: PlannerBench) -> None:
    ledger = bench.gang.ledger
    assert ledger is not None
    ledger.audit([sequence.pages for sequence in bench.queues.running])
    assert [sequence.pages for sequence in bench.queues.waiting] == [[]] * len(bench.queues.waiting)
    for sequence in bench.queues.running:
        assert sequence.planned <= sequence.on_device
        assert len(sequence.pages) * PAGE_TOKENS >= sequence.planned
        assert sequence.known <= bench.capacity.max_sequence_tokens
