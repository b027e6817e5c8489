"""Equal prompts share their pages, also a partly filled one, by copy: no token of them is computed twice but the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS
from tests.support.planner_bench import PlannerBench, next_token

N_ANSWERS = 50
LONG: dict[str, Any] = {"n_pages": 4000, "n_slots": 60, "max_length": 2000}
MayRun = Callable[[Sequence], bool]


def prompt_of(n_tokens: int, last: int = 7) -> list[int]:
    return [position % 97 for position in range(n_tokens - 1)] + [last]


class Counted(PlannerBench):
    """A bench that counts the prompt tokens that its plans compute and copy, and the most pages that were held."""

    n_computed = n_copies = n_most_held = 0

    def plan(self, may_run: MayRun = lambda sequence: True) -> PlannedStep | None:
        planned = super().plan(may_run)
        if planned is not None:
            for row in planned.rows:
                self.n_computed += max(min(row.start + row.count, row.sequence.n_prompt) - row.start, 0)
            self.n_copies += len(planned.plan.copies.targets) if planned.plan.copies is not None else 0
            assert self.gang.ledger is not None
            self.n_most_held = max(self.n_most_held, self.gang.ledger.statistics().held)
        return planned

    def run_pipelined(self) -> None:
        """Two plans are in flight whenever there is something to plan."""
        while self.plan() is not None or self.plans:
            while len(self.plans) < 2 and self.plan() is not None:
                pass
            self.apply()
        assert self.gang.ledger is not None
        self.gang.audit()
        assert self.gang.ledger.statistics().held == 0
        for sequence in self.ended:
            n = sequence.n_prompt
            assert sequence.tokens(n).tolist() == [next_token(sequence, n + at) for at in range(sequence.max_tokens)]


@pytest.mark.parametrize("step_tokens", [64, 2000], ids=["in chunks", "at once"])
@pytest.mark.parametrize("n_prompt", [1, 2, 16, 17, 31, 208, 1000])
def test_siblings_compute_no_prompt_token_twice_but_the_last(n_prompt: int, step_tokens: int) -> None:
    bench = Counted(max_step_tokens=step_tokens, **LONG)
    for _ in range(N_ANSWERS):
        bench.add(prompt_of(n_prompt), max_tokens=3)
    bench.run_pipelined()
    assert len(bench.ended) == N_ANSWERS
    assert bench.n_computed == n_prompt + N_ANSWERS - 1
    assert bench.n_copies == (N_ANSWERS - 1 if (n_prompt - 1) % PAGE_TOKENS else 0)


def test_fifty_answers_to_one_long_prompt_need_less_than_two_fifths_of_the_pages() -> None:
    held = {}
    for prefix_reuse in (False, True):
        bench = Counted({"prefix_reuse": prefix_reuse}, max_step_tokens=2000, **LONG)
        for _ in range(N_ANSWERS):
            bench.add(prompt_of(1000), max_tokens=10)
        bench.run_pipelined()
        held[prefix_reuse] = bench.n_most_held
    assert held[True] <= 0.4 * held[False]
    assert held[True] == 1000 // PAGE_TOKENS + 2 * N_ANSWERS, "the full pages once, and the last two of each answer"


def test_an_equal_prompt_copies_the_page_into_which_the_first_one_writes_its_answer() -> None:
    bench = Counted(max_step_tokens=200)
    first = bench.add(prompt_of(40), max_tokens=60)
    for _ in range(5):
        bench.plan()
        bench.apply()
    second = bench.add(prompt_of(40), max_tokens=60)
    planned = bench.plan()
    assert bench.rows(planned) == [(1, 44, 1, True), (2, 39, 1, True)]
    assert planned is not None
    assert planned.plan.copies is not None
    assert planned.plan.copies.sources.tolist() == [first.pages[2]]
    assert planned.plan.copies.targets.tolist() == [second.pages[2]]
    assert planned.plan.copies.tokens.tolist() == [7]
    bench.run_pipelined()


def test_an_ended_answer_leaves_its_prompt_to_be_copied_once_its_page_is_full() -> None:
    bench = Counted(max_step_tokens=200)
    for _ in range(2):
        bench.add(prompt_of(40), max_tokens=30)
        bench.run_pipelined()
    assert bench.n_computed == 41


def test_a_prompt_that_goes_on_otherwise_copies_what_is_equal() -> None:
    bench = Counted(max_step_tokens=200)
    bench.add(prompt_of(30), max_tokens=20)
    bench.plan()
    bench.add([*prompt_of(30)[:29], 98, *range(20)], max_tokens=20)
    planned = bench.plan()
    assert bench.rows(planned)[1][:3] == (2, 29, 21)
    bench.run_pipelined()


@pytest.mark.parametrize("n_equal", [16, 17, 18, 19])
def test_few_tokens_are_computed_and_not_copied(n_equal: int) -> None:
    bench = Counted(max_step_tokens=200)
    bench.add(prompt_of(22), max_tokens=20)
    bench.plan()
    bench.add([*prompt_of(22)[:n_equal], *[98] * 10], max_tokens=20)
    assert bench.rows(bench.plan())[1][:2] == (2, 16)
    assert not bench.n_copies


def test_a_gang_of_the_last_release_gets_no_copies() -> None:
    bench = Counted(max_step_tokens=200, copies_pages=False)
    for _ in range(3):
        bench.add(prompt_of(40), max_tokens=20)
    bench.run_pipelined()
    assert not bench.n_copies
    assert bench.n_computed == 40 + 2 * 8


def test_a_prompt_follows_one_that_is_computed_in_chunks_as_far_as_both_are_equal() -> None:
    bench = Counted({"plans_in_flight": 1}, max_step_tokens=32, max_length=2000, n_pages=400)
    bench.add(prompt_of(200), max_tokens=2)
    bench.plan()
    bench.apply()
    bench.add([*prompt_of(200)[:100], *[98] * 100], max_tokens=2)
    seen: list[tuple[int, int]] = []
    while len(seen) < 200 and (not seen or seen[-1][0] != 2):
        seen += [row[:2] for row in bench.rows(bench.plan())]
        bench.apply()
    assert seen[-1] == (2, 96)
    bench.run_pipelined()
    assert bench.n_computed == 200 + 104


def test_later_prompts_do_not_take_the_slots_of_those_that_wait_for_a_leader() -> None:
    bench = Counted({"plans_in_flight": 1}, max_step_tokens=64, n_slots=3)
    for prompt in (prompt_of(100), prompt_of(100), prompt_of(100), [98] * 20):
        bench.add(prompt, max_tokens=2)
    numbers = []
    while (planned := bench.plan()) is not None:
        numbers.append([row[0] for row in bench.rows(planned)])
        bench.apply()
    assert numbers[:3] == [[1], [1], [1, 2, 3]]
    assert len(bench.ended) == 4


def test_nobody_waits_for_a_sequence_whose_gateway_has_no_credit() -> None:
    bench = Counted(max_step_tokens=32)
    bench.add(prompt_of(100), max_tokens=2)
    bench.plan()
    bench.add(prompt_of(100), max_tokens=2)
    assert [row[0] for row in bench.rows(bench.plan())] == [1], "it is computed further, so the second one waits"
    assert [row[:2] for row in bench.rows(bench.plan(lambda sequence: sequence.number == 2))] == []
    bench.apply()
    assert [row[:2] for row in bench.rows(bench.plan(lambda sequence: sequence.number == 2))] == [(2, 64)]
    bench.run_pipelined()


def test_a_follower_goes_on_alone_when_its_leader_is_cancelled() -> None:
    bench = Counted({"plans_in_flight": 1}, max_step_tokens=32)
    first, second = bench.add(prompt_of(100), max_tokens=2), bench.add(prompt_of(100), max_tokens=2)
    for _ in range(2):
        bench.plan()
        bench.apply()
    assert second.leader == (first, 99)
    bench.gang.release(first)
    assert bench.rows(bench.plan()) == [(2, 64, 32, False)]
    assert second.leader is None
    bench.run_pipelined()


@pytest.mark.parametrize("n_applied", [0, 1, 2])
def test_after_the_death_of_the_gang_a_copy_in_flight_is_not_trusted(n_applied: int) -> None:
    bench = Counted(max_step_tokens=200)
    sequences = [bench.add(prompt_of(40), max_tokens=20) for _ in range(4)]
    bench.plan()
    bench.plan()
    assert bench.n_copies == 3
    for _ in range(n_applied):
        bench.apply()
    bench.die()
    first_lost = {0: [0, 32, 32, 32], 1: [40, 32, 32, 32], 2: [41, 40, 40, 40]}[n_applied]
    kept = [sequence.planned for sequence in sequences]
    assert kept == (first_lost if n_applied else [0, 0, 0, 0]), "what nobody has computed is lost with its pages"
    bench.run_pipelined()
    assert len(bench.ended) == 4
