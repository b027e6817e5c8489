"""Models of quantised checkpoints on CPU cores: as the floats that their weights stand for, or near them where inputs are
rounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.cpu.exact_ops import ExactWeight
from gpu_workers.cpu.int8_ops import Int8Weight
from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.tensor_group import DistributedGroup, SingleRank, TensorGroup
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from gpu_workers.settings import Quantization
from tests.support.quantized.writer import write_quantized
from tests.support.ranks.rank_pool import RankPool
from tests.support.workers.paged_loop import PagedLoop, PagedSequence
from tests.support.workers.tiny_model import write_model

pytestmark = pytest.mark.slow
DEADLINE_S = 120.0
LEFT = ("layers.1.mlp.up_proj",)

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """The quantised checkpoint of a kind, and one of the floats that it stands for."""
    sizes = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 160, "vocab_size": 320}  # which our kernels have
    plain = write_model(tmp_path_factory.mktemp("plain"), **sizes)
    made: dict[str, Pair] = {}

    def write(kind: str) -> Pair:
        if kind not in made:
            made[kind] = write_quantized(plain, tmp_path_factory.mktemp("pair"), kind, LEFT)
        return made[kind]

    return write


def model_of(folder: Path, quantization: Quantization, group: TensorGroup | None = None) -> Model:
    """group: of ranks, whose parts of weights have sizes that only torch has; None: one rank, all by our kernels."""
    placement = WeightPlacement(torch.device("cpu"), torch.float32, quantization=quantization)
    return build_model(read_model_config(folder), folder, placement, deterministic=group is None, group=group)


def logits_of(model: Model) -> torch.Tensor:
    loop, sequences = PagedLoop(model), [PagedSequence(list(range(3, 3 + n))) for n in (40, 25, 7)]
    steps = ((30, 25, 3), (1, 0, 1), (9, 0, 1))
    rows = [[(one, n) for one, n in zip(sequences, counts, strict=True) if n] for counts in steps]
    return torch.cat([loop.run(step) for step in rows])


@pytest.mark.parametrize("kind", ["int8 rows", "packed", "awq", "gptq 8"])
def test_integers_that_stay_give_the_logits_of_floats_bit_by_bit(kind: str, written: Callable[[str], Pair]) -> None:
    quantized, floats = written(kind)
    model = model_of(quantized, "exact")
    layers = model._weights.layers  # pyright: ignore[reportAttributeAccessIssue]
    assert all(isinstance(layer.qkv, ExactWeight) for layer in layers)
    assert [isinstance(layer.gate_up, ExactWeight) for layer in layers] == [True, False], "one of two was left in floats"
    assert logits_of(model).equal(logits_of(model_of(floats, "none")))


@pytest.mark.parametrize("kind", ["fp8 rows", "deepseek", "int8 rows of float32", "gptq v2 shuffled"])
def test_what_has_no_product_of_its_own_is_floats(kind: str, written: Callable[[str], Pair]) -> None:
    quantized, floats = written(kind)
    for form in ("none", "exact"):
        assert logits_of(model_of(quantized, form)).equal(logits_of(model_of(floats, "none")))


@pytest.mark.parametrize(
    ("kind", "form", "near"), [("int8 rows", "int8", 0.06), ("fp8 rows", "int8", 0.08), ("awq", "int4", 0.06)]
)
def test_rounded_inputs_give_logits_that_are_near(
    kind: str, form: Quantization, near: float, written: Callable[[str], Pair]
) -> None:
    """Integers of the file are not rounded again."""
    quantized, floats = written(kind)
    model = model_of(quantized, form)
    assert isinstance(model._weights.layers[0].down, Int8Weight)  # pyright: ignore[reportAttributeAccessIssue]
    got, wanted = logits_of(model), logits_of(model_of(floats, "none"))
    error = (got - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert float(error) < near, float(error)


def _rank(rank: int, folder: Path, results: Path) -> np.ndarray:
    torch.set_num_threads(1)
    group = DistributedGroup.join(rank, 2, results / "rendezvous", torch.device("cpu"), DEADLINE_S)
    logits = logits_of(model_of(folder, "exact", group)).numpy()
    group.close()
    return logits


@pytest.mark.parametrize("kind", ["int8 rows", "awq"])
def test_two_ranks_cut_scales_with_their_weights(
    kind: str, written: Callable[[str], Pair], rank_pool: RankPool, tmp_path: Path
) -> None:
    """Columns of the feed-forward are cut within a group, so those of AWQ become floats there."""
    quantized, _ = written(kind)
    ranks = rank_pool.start(2, _rank, quantized, tmp_path)
    expected = logits_of(model_of(quantized, "exact", SingleRank())).numpy()
    first, second = (rank.result(DEADLINE_S) for rank in ranks)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, expected, atol=1e-4, rtol=1e-3)
