"""How much of the prompts goes into a step: no long gap, no prompt that waits for ever, room for others beside a long one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.rows.advance import Advances
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import Result
from messages.wire.arrays import int32s
from tests.support.depth import examples
from tests.support.planner_bench import PlannerBench

pytestmark = pytest.mark.slow

_CAPACITY = {"n_pages": 4000, "n_slots": 64, "max_length": 40_000, "max_step_tokens": 8192}
_DECODE_S, _ROW_S, _TOKEN_S, _PAIR_S = 4e-3, 20e-6, 20e-6, 1.6e-9


def step_s(planned: PlannedStep) -> float:
    """What a step takes on a made-up device: 4 ms for any decode rows, 50,000 tokens a second, more with a long context."""
    return _DECODE_S + _ROW_S * len(planned.rows) + _TOKEN_S * planned.prompt_tokens + _PAIR_S * planned.prompt_pairs


@dataclass
class Run:
    """A bench whose steps take time. `now_s`: of the made-up device; `first_s`: when each sequence got its first token."""

    bench: PlannerBench
    time_of: Callable[[PlannedStep], float] = step_s

    def __post_init__(self) -> None:
        self.now_s = 0.0
        self.first_s: dict[int, float] = {}
        self.steps: list[tuple[PlannedStep, float]] = []
        apply = self.bench.gang.apply
        self._took: deque[float] = deque()

        def timed(result: Result) -> Advances:
            return apply(msgspec.structs.replace(result, compute_s=self._took[0]))

        self.bench.gang.apply = timed  # type: ignore[method-assign]

    def step(self) -> bool:
        """Plan ahead, then apply the oldest plan. False if there is nothing left."""
        while (planned := self.bench.plan()) is not None:
            self._took.append(self.time_of(planned))
        if not self.bench.plans:
            return False
        planned = self.bench.plans[0]
        self.now_s += self._took[0]
        self.steps.append((planned, self._took[0]))
        for advance in self.bench.apply():
            self.first_s.setdefault(advance.row.sequence.number, self.now_s)
        self._took.popleft()
        return True

    def finish(self) -> None:
        """Until every sequence has ended."""
        while self.step():
            pass

    def warm(self) -> None:
        """Run a sequence alone, so that costs are known."""
        self.bench.add([1] * 600, max_tokens=3)
        self.finish()


def run_of(**settings: object) -> Run:
    return Run(PlannerBench({"prefix_reuse": False} | settings, **_CAPACITY))


def add(run: Run, n_prompt: int, max_tokens: int = 40) -> Sequence:
    return run.bench.add([7] * n_prompt, max_tokens=max_tokens)


def test_a_step_with_prompts_lasts_no_longer_than_the_setting_while_sequences_decode() -> None:
    run = run_of(step_s=0.02)
    run.warm()
    for _ in range(8):
        add(run, 50, max_tokens=300)
    run.step()
    for _ in range(3):
        add(run, 4000)
    run.steps.clear()
    run.finish()
    beside = [took_s for planned, took_s in run.steps if planned.n_prompts and len(planned.rows) > planned.n_prompts]
    assert len(beside) > 5
    assert max(beside) < 0.030
    short = [took_s for planned, took_s in run.steps if not planned.n_prompts]
    assert len(short) > len(beside)  # decode steps between them keep the median gap short


def urgent_run(n_prompts: int) -> list[float]:
    """The times of steps in which eight sequences decode and so many prompts of a low priority are computed, once an urgent
    request has come."""
    run = run_of(step_s=0.04, policy="priority")
    run.warm()
    for _ in range(8):
        run.bench.add([7] * 50, max_tokens=300, priority=9)
    run.bench.add([7] * 50, max_tokens=1, priority=0)
    for _ in range(4):
        run.step()
    for _ in range(n_prompts):
        run.bench.add([7] * 4000, max_tokens=2, priority=9)
    run.steps.clear()
    for _ in range(12):
        run.step()
    return [took_s for planned, took_s in run.steps if planned.n_prompts and len(planned.rows) > planned.n_prompts]


def test_while_urgent_requests_come_steps_last_half_as_long_unless_prompts_pile_up() -> None:
    assert 0.015 < max(urgent_run(n_prompts=1)) < 0.026
    assert max(urgent_run(n_prompts=40)) > 0.035


def test_without_the_setting_steps_are_filled_as_far_as_tokens_go() -> None:
    run = run_of(step_s=0.0)
    run.warm()
    add(run, 50, max_tokens=300)
    run.step()
    add(run, 8000)
    run.step()
    run.step()
    assert max(planned.prompt_tokens for planned, _ in run.steps) == 8000


def test_short_prompts_do_not_wait_for_a_very_long_one() -> None:
    run = run_of(step_s=0.02)
    run.warm()
    long = add(run, 38_000)
    run.step()
    short = [add(run, 200) for _ in range(10)]
    began_s = run.now_s
    run.finish()
    assert max(run.first_s[sequence.number] for sequence in short) < began_s + 0.6
    assert run.first_s[long.number] > began_s + 1.0


def test_a_long_context_gets_long_chunks_that_are_followed_by_short_steps() -> None:
    run = run_of(step_s=0.02, prompt_share=0.6)
    run.warm()
    for _ in range(4):
        add(run, 20, max_tokens=600)
    run.step()
    add(run, 39_000, max_tokens=1)
    run.steps.clear()
    while run.step() and len(run.first_s) < 6:
        pass
    deep = [planned for planned, _ in run.steps if planned.n_prompts and planned.prompt_pairs > 30_000 * planned.prompt_tokens]
    assert min(planned.prompt_tokens for planned in deep[:-1]) >= 512  # a token for every 24 keys, at most 8192 / 16
    prompts_s = sum(_TOKEN_S * planned.prompt_tokens + _PAIR_S * planned.prompt_pairs for planned, _ in run.steps)
    assert prompts_s < 0.7 * sum(took_s for _, took_s in run.steps)


def test_prompts_that_queue_get_a_larger_share() -> None:
    def rate(n_prompts: int) -> float:
        run = run_of(step_s=0.02)
        run.warm()
        for _ in range(16):
            add(run, 20, max_tokens=400)
        run.step()
        for _ in range(n_prompts):
            add(run, 2000, max_tokens=1)
        run.steps.clear()
        for _ in range(12):
            run.step()
        return sum(planned.prompt_tokens for planned, _ in run.steps) / sum(took_s for _, took_s in run.steps)

    assert rate(40) > 1.2 * rate(1)


@given(st.integers(0, 2**32))
@examples(12)
def test_the_first_prompt_in_order_always_gets_half_of_what_prompts_get(seed: int) -> None:
    """Nobody starves: as long as prompts are computed, the first one in order has half of their time, however many shorter ones
    keep coming; so it ends after at most twice its own time and the time of those before it."""
    rng = random.Random(seed)
    run = run_of(step_s=rng.choice([0.0, 0.005, 0.02, 0.1]), plans_in_flight=rng.choice([1, 2]))
    run.warm()
    for _ in range(rng.randint(0, 6)):
        add(run, rng.randint(1, 100), max_tokens=2000)
    run.step()
    first = add(run, rng.randint(1000, 30_000), max_tokens=1)
    spent = {True: 0.0, False: 0.0}
    while first.number not in run.first_s:
        for _ in range(rng.randint(0, 3)):
            add(run, rng.choice([20, 200, 2000]), max_tokens=rng.randint(1, 20))
        n_before = len(run.steps)
        assert run.step()
        for planned, _ in run.steps[n_before:]:
            for row in planned.rows:
                if row.count > 1:
                    cost_s = _TOKEN_S * row.count + _PAIR_S * (row.count * row.start + row.count**2 // 2)
                    spent[row.sequence is first] += cost_s
        assert len(run.steps) < 5000
    slack_s = 0.3  # a step of prompts alone, before anybody decodes, and chunks that were larger than planned
    assert spent[False] <= 1.5 * spent[True] + slack_s


@pytest.mark.parametrize("policy", ["priority", "fcfs"])
def test_the_shortest_prompts_share_the_other_half(policy: str) -> None:
    run = run_of(step_s=0.0, policy=policy, plans_in_flight=1)
    run.bench.capacity = msgspec.structs.replace(run.bench.capacity, max_step_tokens=100)
    run.bench.begin(generation=1)
    lengths = [500, 400, 30, 60, 10]
    numbers = [add(run, n).number for n in lengths]
    planned = run.bench.plan()
    assert planned is not None
    counts = {row.sequence.number: row.count for row in planned.rows}
    assert counts == {numbers[0]: 50, numbers[4]: 10, numbers[2]: 30, numbers[3]: 10}
    assert planned.plan.row_counts.sum() == 100
    assert int32s(planned.plan.row_samples).sum() == 2
