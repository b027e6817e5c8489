"""A runner with 8-bit weights on a CUDA device: near the model whose weights are not rounded, and graphs change nothing."""

from __future__ import annotations

import pytest
import torch

from gpu_workers.runner.model_runner import ModelRunner
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.tiny_model import load_runner, write_model

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelRunner, ModelRunner]:
    """With 8-bit weights, and with those of the checkpoint."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs a CUDA device of compute capability 9.0")
    folder = write_model(tmp_path_factory.mktemp("tiny"))
    return load_runner(folder, "cuda", "bfloat16", "fp8"), load_runner(folder, "cuda", "bfloat16")


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_change_nothing(runners: tuple[ModelRunner, ModelRunner], monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    runner = runners[0]
    assert runner._graphs is not None
    with_graphs = [alone(runner, prompt_of(n), KINDS[kind], 40) for n in (1, 30, 61)]
    monkeypatch.setattr(runner, "_graphs", None)
    assert [alone(runner, prompt_of(n), KINDS[kind], 40) for n in (1, 30, 61)] == with_graphs


def test_most_first_tokens_are_those_of_the_plain_model(runners: tuple[ModelRunner, ModelRunner]) -> None:
    """Logits of the tiny model lie far apart."""
    first = [[alone(runner, prompt_of(n), KINDS["greedy"], 1) for n in range(1, 61)] for runner in runners]
    n_equal = sum(one == other for one, other in zip(*first, strict=True))
    assert n_equal >= 48, n_equal
