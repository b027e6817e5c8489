"""Log probabilities of prompts on a tiny random model: those of `transformers`, however the work is cut into plans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.sampling import prompt_logprobs
from messages.generation.logprobs import PromptLogprobs, join_prompt
from messages.steps import Result
from tests.support.workers.sampling_kinds import prompt_of
from tests.support.workers.small_scheduler import Row, Running, SmallScheduler
from tests.support.workers.tiny_model import load_runner, reference_logprobs, write_model

pytest.importorskip("transformers")
WIDTH = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def runner(folder: Path) -> ModelRunner:
    return load_runner(folder, "cpu")


@pytest.fixture(scope="module")
def reference(folder: Path) -> torch.Tensor:
    return reference_logprobs(folder, prompt_of(45))


def scored(scheduler: SmallScheduler, prompt: list[int], width: int = WIDTH) -> Running:
    sequence = scheduler.add(prompt)
    sequence.prompt_logprobs = width
    return sequence


def of(results: list[Result], sequence: Running) -> list[PromptLogprobs]:
    return [part for result in results for part in result.prompts if part.owner == sequence.slot]


def check(found: PromptLogprobs, reference: torch.Tensor) -> None:
    ids = torch.tensor(prompt_of(45)[1:])
    wanted = reference.gather(-1, ids[:, None]).squeeze(-1)
    np.testing.assert_allclose(found.logprobs.chosen, wanted, atol=1e-3)
    assert np.abs(found.ranks - 1 - (reference > wanted[:, None]).sum(-1).numpy()).max() == 0
    top = reference.topk(WIDTH)
    np.testing.assert_allclose(found.logprobs.top.reshape(-1, WIDTH), top.values, atol=1e-3)
    assert (found.logprobs.top_ids.reshape(-1, WIDTH) == top.indices.numpy()).all()


@pytest.mark.parametrize("cuts", [(45,), (1, 16, 9, 19), (44, 1), (30, 14, 1)])
def test_chunks_of_a_prompt_give_those_of_transformers(
    runner: ModelRunner, reference: torch.Tensor, cuts: tuple[int, ...]
) -> None:
    scheduler = SmallScheduler(runner, seed=5)
    s, other, plain = scored(scheduler, prompt_of(45)), scored(scheduler, prompt_of(70, 3), 1), scheduler.add(prompt_of(80, 4))
    results: list[Result] = []
    for count in cuts:
        results += scheduler.run([Row(plain, 5), Row(s, count), Row(other, 7)])
    check(join_prompt(of(results, s)), reference)
    assert sum(part.n_tokens for part in of(results, other)) == 7 * len(cuts)
    assert not of(results, plain)
    scheduler.decode([s], 2)
    assert scheduler.run([Row(s, drafts=[1, 2])])[0].prompts == []  # the answer's tokens are none of the prompt


def test_pieces_of_logits_change_nothing(runner: ModelRunner, reference: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_logprobs, "_PIECE_LOGITS", 211 * 4)
    scheduler = SmallScheduler(runner)
    s = scored(scheduler, prompt_of(45))
    check(join_prompt(of(scheduler.run([Row(s, 45)]), s)), reference)


def test_the_sampled_tokens_are_those_without(runner: ModelRunner) -> None:
    outputs = []
    for width in (-1, 0, 20):
        scheduler = SmallScheduler(runner)
        s = scored(scheduler, prompt_of(45), width)
        scheduler.run([Row(s, 20)])
        scheduler.run([Row(s, 25)])
        scheduler.decode([s], 8)
        outputs.append(s.output)
    assert outputs[0] == outputs[1] == outputs[2]


def test_a_slot_forgets_what_its_last_sequence_wanted(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    first = scored(scheduler, prompt_of(20))
    assert of(scheduler.run([Row(first, 20)]), first)
    scheduler.drop(first)
    second = scheduler.add(prompt_of(20, 2))
    assert second.slot == first.slot
    assert scheduler.run([Row(second, 20)])[0].prompts == []
