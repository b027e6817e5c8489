"""Weights as 8-bit floats: what is stored, what it stands for, and what it costs the real SmolLM2."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import linear

from gpu_workers.cuda.fp8_weights import FP8, GREATEST, fits_fp8, pack, pack_stored, packed_size, quantise_rows, unpack
from gpu_workers.layers.attention import TorchAttention
from gpu_workers.layers.quantized.stored_weight import StoredWeight
from gpu_workers.layers.shard import Shard, shard_model
from gpu_workers.layers.tensor_group import SingleRank
from gpu_workers.layers.torch_ops import TorchOps
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from tests.support.quantized.writer import write_quantized
from tests.support.workers.model_loss import loss_of


def test_a_packed_weight_is_near_the_weight() -> None:
    weight = torch.randn(48, 80, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 48)[:, None]
    weight[7] = 0
    packed = pack(weight.bfloat16())
    assert packed.shape == (packed_size(48, 80),)
    found = unpack(packed)
    assert (found.numbers.shape, found.numbers.dtype, found.scales.shape) == ((48, 80), FP8, (48,))
    value, expected = found.numbers.double() * found.scales[:, None], weight.bfloat16().double()
    greatest = expected.abs().amax(1, keepdim=True)
    assert ((value - expected).abs() <= expected.abs() / 15.9 + greatest / GREATEST * 2**-9).all()
    assert not value[7].any()


def test_numbers_of_a_checkpoint_are_packed_as_they_are() -> None:
    """Bit by bit, also with one scale for all rows; a weight with scales for blocks, or of integers, is not taken."""
    numbers = torch.arange(32 * 48).to(torch.uint8).bitwise_and(0x77).view(FP8).view(32, 48)
    for scales in (torch.rand(32, 1), torch.tensor([[0.125]]).expand(32, 1)):
        packed = pack_stored(StoredWeight(numbers, scales, 8))
        assert packed is not None
        found = unpack(packed)
        assert found.numbers.view(torch.uint8).equal(numbers.view(torch.uint8))
        assert found.scales.equal(scales[:, 0])
    assert pack_stored(StoredWeight(numbers, torch.ones(32, 2), 8, groups=torch.arange(48) // 24)) is None
    assert pack_stored(StoredWeight(numbers.view(torch.int8), torch.ones(32, 1), 8)) is None
    assert pack_stored(StoredWeight(numbers[:24], torch.ones(24, 1), 8)) is None


def test_a_weight_that_is_counted_has_the_size_of_a_packed_one() -> None:
    packed = pack(torch.empty(32, 64, dtype=torch.bfloat16, device="meta"))
    assert packed.is_meta
    assert packed.shape == (packed_size(32, 64),)


@pytest.mark.parametrize(("n_out", "n_in", "fits"), [(16, 32, True), (24, 32, False), (16, 40, False)])
def test_both_sides_are_multiples_of_sixteen(n_out: int, n_in: int, fits: bool) -> None:
    assert fits_fp8(n_out, n_in) is fits


def test_what_is_no_number_stays_none() -> None:
    """A fault in a row is seen behind the product."""
    rows = torch.tensor([[1.0, float("nan")], [float("inf"), 1.0], [1.0, 2.0]])
    numbers, scales = quantise_rows(rows)
    assert (numbers.float() * scales).isnan().any(1).tolist() == [True, True, False]


class ReferenceOps(TorchOps):
    """What the kernels compute, in float32 on any device; one row is not rounded, as on a GPU."""

    takes_stored = True

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        return pack(weight)

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        return pack_stored(stored)

    def linear_weight(self, packed: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """The numbers that it stands for, and whether these are rounded ones."""
        if packed.dtype != torch.uint8:
            return packed, False
        stored = unpack(packed)
        return stored.numbers.float() * stored.scales[:, None], True

    def linear(self, x: torch.Tensor, weight: tuple[torch.Tensor, bool], bias: torch.Tensor | None) -> torch.Tensor:
        numbers, is_rounded = weight
        if is_rounded and len(x) > 1:
            rounded, scales = quantise_rows(x)
            x = rounded.float() * scales
        return linear(x, numbers, bias)


def reference_model(folder: Path) -> Model:
    config = read_model_config(folder)
    shard: Shard = shard_model(config, 0, 1)
    attention = TorchAttention(torch.float32, shard.shared_heads, len(shard.kv_heads))
    parts = RankParts(shard, ReferenceOps(), attention, SingleRank(), None)
    return load_model(config, folder, WeightPlacement(torch.device("cpu"), torch.float32), parts)


@pytest.mark.long
def test_the_loss_of_a_checkpoint_of_eight_bit_floats(smollm2_folder: Path, tmp_path: Path) -> None:
    """Numbers and scales of the rows are those of the file; inputs are rounded."""
    quantized, _ = write_quantized(smollm2_folder, tmp_path, "fp8 rows")
    ratio, agreement = loss_of(reference_model(quantized), smollm2_folder, 800, 250)
    assert ratio <= 1.03
    assert agreement >= 0.9


@pytest.mark.long
def test_the_loss_of_eight_bit_weights(smollm2_folder: Path) -> None:
    """Weights and inputs are rounded. Over the whole text the ratio is 1.019."""
    ratio, agreement = loss_of(reference_model(smollm2_folder), smollm2_folder, 800, 250)
    assert ratio <= 1.03
    assert agreement >= 0.9
