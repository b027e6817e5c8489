"""Products of stored integers with float inputs have the bits of float32 weights; which weights are stored so."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.machine import Machine, this_machine
from tests.support.depth import dear_examples

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.deterministic import DeterministicCpuOps
from gpu_workers.cpu.exact_ops import ExactCpuOps, ExactWeight
from gpu_workers.cpu.kernels import exact_weights
from tests.support.kernels.exact_model import of_integers
from tests.support.kernels.integer_products import numbers

pytestmark = pytest.mark.slow
GROUP, BLOCK = exact_weights.GROUP, exact_weights.BLOCK
BITS = st.sampled_from(exact_weights.BITS)


@cache
def all_ops() -> list[ExactCpuOps]:
    """Of this processor first; of the same with short vectors."""
    machine = this_machine()
    assert machine is not None
    return [ExactCpuOps(torch.float32, one) for one in (machine, Machine(8, 16, is_x86=machine.is_x86))]


@cache
def float_ops() -> DeterministicCpuOps:
    machine = this_machine()
    assert machine is not None
    return DeterministicCpuOps(torch.float32, machine)


@dear_examples(25)
@given(st.integers(1, 40), st.integers(1, 10), st.integers(1, 140), BITS, st.booleans())
def test_the_product_has_the_bits_of_float32_weights(
    n: int, n_groups: int, n_out: int, bits: exact_weights.Bits, has_bias: bool
) -> None:
    """Rows for which numbers come from registers and from a tile; inputs of one tile and of several."""
    n_in = n_groups * GROUP
    x, weight = numbers(n, n_in, seed=n), of_integers(numbers(n_out, n_in, seed=n_in), bits)
    bias = numbers(n_out, seed=n_out) if has_bias else None
    whole = torch.nn.functional.pad(weight, (0, 0, 0, -n_out % BLOCK))
    expected = float_ops().linear(x, float_ops().pack_linear(whole), None)[:, :n_out]
    for ops in all_ops():
        stored = ops.pack_linear(weight)
        assert isinstance(stored, ExactWeight)
        assert (stored.bits, stored.n_out, stored.n_in) == (bits, n_out, n_in)
        assert ops.linear(x, stored, bias).equal(expected if bias is None else expected + bias)
        assert exact_weights.unpack(stored.packed).equal(weight)


@pytest.mark.parametrize("bits", exact_weights.BITS)
def test_a_weight_that_is_not_made_of_integers_stays_float32(bits: int) -> None:
    ops, weight = all_ops()[0], of_integers(numbers(200, 96, seed=1), bits)
    assert isinstance(ops.pack_linear(weight), ExactWeight)
    for row in (0, 199):  # of the block that is tried first, and of the last one
        other = weight.clone()
        other[row, other[row].abs().argmax()] *= 1 + 2**-20
        packed = ops.pack(other)
        assert packed.dtype == torch.float32
        x = numbers(5, 96, seed=2)
        torch.testing.assert_close(ops.linear(x, ops.linear_weight(packed), None), x @ other.T, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e6])
def test_what_float16_cannot_hold_stays_float32(wrong: float) -> None:
    weight = of_integers(numbers(64, 96, seed=1), 4)
    weight[1, 40] = wrong
    assert all_ops()[0].pack(weight).dtype == torch.float32


def test_inputs_of_no_whole_group_and_other_dtypes_stay_floats() -> None:
    machine = this_machine()
    assert machine is not None
    assert all_ops()[0].pack(torch.zeros(64, 48)).dtype == torch.float32
    weight = of_integers(numbers(64, 96, seed=1), 4).bfloat16()
    assert ExactCpuOps(torch.bfloat16, machine).pack(weight).dtype == torch.bfloat16


def test_zeros_and_equal_numbers_are_integers() -> None:
    for number in (0.0, -1.5):
        stored = all_ops()[0].pack_linear(torch.full((3, GROUP), number))
        assert isinstance(stored, ExactWeight)
        assert exact_weights.unpack(stored.packed).eq(number).all()
