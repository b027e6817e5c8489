"""A runner with 8-bit weights on a CUDA device: near the model whose weights are not rounded, and graphs change little."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gpu_workers.runner.model_runner import ModelRunner
from tests.support.quantized.writer import write_quantized
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


def test_a_checkpoint_of_8_bit_floats_is_computed_with_as_it_is(tmp_path: Path) -> None:
    """Run it alone with `python -m pytest -m gpu tests/gpu/test_fp8.py`. Scales of rows, and one for each weight: numbers and
    scales on the device are those of the file. First tokens are mostly those of the floats that they stand for."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs a CUDA device of compute capability 9.0")
    (tmp_path / "plain").mkdir()
    plain = write_model(tmp_path / "plain")
    for kind in ("fp8 rows", "autofp8", "deepseek"):
        (tmp_path / kind).mkdir()
        quantized, floats = write_quantized(plain, tmp_path / kind, kind)
        runners = load_runner(quantized, "cuda", "bfloat16", "fp8"), load_runner(floats, "cuda", "bfloat16")
        layer = runners[0]._model._weights.layers[0]  # pyright: ignore[reportAttributeAccessIssue]
        if kind != "deepseek":  # whose scales are of blocks, and are made anew
            stored = load_file(quantized / "model.safetensors")["model.layers.0.mlp.down_proj.weight"]
            assert layer.down.numbers.cpu().view(torch.uint8).equal(stored.view(torch.uint8))
        first = [[alone(runner, prompt_of(n), KINDS["greedy"], 1) for n in range(1, 61)] for runner in runners]
        assert sum(one == other for one, other in zip(*first, strict=True)) >= 36, kind
