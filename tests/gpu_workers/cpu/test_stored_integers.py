"""Integers of checkpoints in the layouts of our products: exactly what they stand for, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_workers.cpu.kernels import exact_weights, int4_weights, int8_weights
from gpu_workers.cpu.kernels.int8_weights import read_bits
from gpu_workers.cpu.stored_integers import pack_4_bits, pack_8_bits, pack_exactly
from gpu_workers.layers.quantized.stored_weight import StoredWeight, join_rows

N_OUT, N_IN = 100, 128  # no whole number of blocks of 64 outputs


def stored_of(bits: int, group: int, *, zero: int | None = None) -> StoredWeight:
    """Random integers; scales in bfloat16; zero None: random zeros."""
    generator = torch.Generator().manual_seed(bits + group)
    n_groups, top = N_IN // group if group else 1, 2**bits
    numbers = torch.randint(0, top, (N_OUT, N_IN), generator=generator, dtype=torch.uint8)
    scales = (torch.rand(N_OUT, n_groups, generator=generator).bfloat16().float() + 0.25) / 512
    zeros = torch.randint(1, top, (N_OUT, n_groups), generator=generator, dtype=torch.int16)
    if zero is not None:
        zeros = torch.full_like(zeros, zero)
    return StoredWeight(numbers, scales.bfloat16().float(), bits, zeros, torch.arange(N_IN) // group if group else None)


def signed(group: int = 0) -> StoredWeight:
    """8-bit integers with a sign, the lowest one included."""
    numbers = (stored_of(8, group).numbers.to(torch.int16) - 128).to(torch.int8)
    numbers[0, 0] = -128
    return StoredWeight(numbers, stored_of(8, group).scales, 8, None, stored_of(8, group).groups)


@pytest.mark.parametrize("group", [0, 32, 64])
def test_integers_in_the_exact_layout_stand_for_the_same_numbers(group: int) -> None:
    for stored, bits in ((signed(group), 8), (stored_of(8, group, zero=128), 8), (stored_of(4, group, zero=8), 4)):
        packed = pack_exactly(stored)
        assert packed is not None
        assert read_bits(packed) == bits
        assert exact_weights.unpack(packed).equal(stored.floats())


def test_zeros_that_need_more_digits_take_eight_bits() -> None:
    """The scale has eleven digits, and its product with 13 has more."""
    stored = stored_of(4, 32, zero=13)
    fine = torch.full_like(stored.scales, 2047 / 2048)
    packed = pack_exactly(StoredWeight(stored.numbers, fine, 4, stored.zeros, stored.groups))
    assert packed is not None
    assert read_bits(packed) == 8
    assert exact_weights.unpack(packed).equal((stored.numbers.float() - 13) * fine[0, 0])


@pytest.mark.parametrize(
    "stored",
    [
        stored_of(4, 16, zero=8),  # two scales in 32 inputs
        replace(stored_of(4, 32, zero=8), scales=torch.full((N_OUT, 4), 1 / 3)),  # a step that float16 has not
        stored_of(8, 32),  # zeros that make nine bits
        StoredWeight(torch.zeros(64, 64).to(torch.float8_e4m3fn), torch.ones(64, 1), 8),
    ],
)
def test_what_would_be_rounded_is_left_to_floats(stored: StoredWeight) -> None:
    assert pack_exactly(stored) is None


def test_quantised_products_keep_the_integers() -> None:
    eight, four = signed(), stored_of(4, 64)
    packed = pack_8_bits(eight)
    assert packed is not None
    assert packed.shape == (int8_weights.packed_size(N_OUT, N_IN),)
    assert int8_weights.unpack(packed).equal(eight.floats())
    packed = pack_4_bits(four)
    assert packed is not None
    assert packed.shape == (int4_weights.packed_size(N_OUT, N_IN),)
    torch.testing.assert_close(int4_weights.unpack(packed), four.floats(), atol=2.0**-14, rtol=0)
    assert pack_4_bits(eight) is None


def test_weights_of_different_forms_are_not_joined() -> None:
    eight, other = signed(), stored_of(4, 64)
    joined = join_rows([eight, eight])
    assert joined is not None
    assert joined.floats().equal(torch.cat([eight.floats()] * 2))
    assert join_rows([eight, other]) is None
    assert join_rows([eight, signed(32)]) is None
