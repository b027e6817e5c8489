"""A runner with 8-bit weights on a CUDA device: near the model whose weights are not rounded, and graphs change little."""

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
def test_graphs_change_little(runners: tuple[ModelRunner, ModelRunner], monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Graphs have more rows than the step, and other numbers of rows are summed in another order. A last place of an input
    then decides between two 8-bit numbers that lie 6 % apart, so some answers part."""
    runner = runners[0]
    assert runner._graphs is not None
    with_graphs = [alone(runner, prompt_of(n), KINDS[kind], 2) for n in range(1, 61)]
    monkeypatch.setattr(runner, "_graphs", None)
    without = [alone(runner, prompt_of(n), KINDS[kind], 2) for n in range(1, 61)]
    n_equal = sum(one == other for one, other in zip(with_graphs, without, strict=True))
    assert n_equal >= 36, n_equal


def test_most_first_tokens_are_those_of_the_plain_model(runners: tuple[ModelRunner, ModelRunner]) -> None:
    """Random weights of a tiny model are changed more by rounding than trained ones; chance would give none."""
    first = [[alone(runner, prompt_of(n), KINDS["greedy"], 1) for n in range(1, 61)] for runner in runners]
    n_equal = sum(one == other for one, other in zip(*first, strict=True))
    assert n_equal >= 36, n_equal
