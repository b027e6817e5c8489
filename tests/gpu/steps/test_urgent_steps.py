"""Urgent steps on a stream of their own change no token, neither their own nor those of the steps beside them."""

from __future__ import annotations

import msgspec
import pytest
import torch

from gpu_workers.engine import PlanRefused
from gpu_workers.runner.beside_runner import BesideRunner
from gpu_workers.runner.model_runner import ModelRunner
from messages.steps import Result
from tests.support.workers.sampling_kinds import KINDS, prompt_of
from tests.support.workers.small_scheduler import Row, Running, SmallScheduler
from tests.support.workers.tiny_model import load_runner, write_model

pytestmark = pytest.mark.gpu
_ROUNDS, _STEPS = 12, 4


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    runner = load_runner(write_model(tmp_path_factory.mktemp("tiny")), "cuda", urgent_stream=True)
    assert isinstance(runner, BesideRunner)
    assert runner.capacity().beside_tokens == 256
    return runner


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_steps_in_order(runner: ModelRunner, kind: str) -> None:
    assert tokens_of(runner, kind, is_beside=True) == tokens_of(runner, kind, is_beside=False)


def tokens_of(runner: ModelRunner, kind: str, *, is_beside: bool) -> list[list[int]]:
    """The tokens of four sequences, and of one more in each round, whose prompt is computed beside leases of the others."""
    scheduler = SmallScheduler(runner)
    usual = [scheduler.add(prompt_of(20 + index), KINDS[kind]) for index in range(4)]
    scheduler.prefill(*usual)
    urgent: list[Running] = []
    for index in range(_ROUNDS):
        one = scheduler.add(prompt_of(30 + 11 * index), KINDS[kind])
        launched = [runner.launch(scheduler.write_plan([Row(s) for s in usual], _STEPS)) for _ in range(2)]
        plan = scheduler.write_plan([Row(one, len(one.tokens))])
        urgent_step = runner.launch(msgspec.structs.replace(plan, is_urgent=is_beside))
        launched.append(runner.launch(scheduler.write_plan([Row(s) for s in (*usual, one)])))
        results: list[Result] = list(runner.collect(urgent_step))
        for step in launched:
            results += runner.collect(step)
        scheduler.read(sorted(results, key=lambda result: int(result.step)))
        urgent.append(one)
        scheduler.drop(one)
    return [s.tokens for s in (*usual, *urgent)]


def test_a_refused_plan_changes_nothing(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    one = scheduler.add(prompt_of(20), KINDS["greedy"])
    scheduler.prefill(one)
    plan = scheduler.write_plan([Row(one)])
    with pytest.raises(PlanRefused, match="urgent plan"):
        runner.launch(msgspec.structs.replace(plan, is_urgent=True))
    results = scheduler.read(list(runner.collect(runner.launch(plan))))
    assert len(results) == 1
