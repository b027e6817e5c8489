"""Products of 4-bit integers: what they compute, that nothing else in a batch changes a bit, which weights they keep."""

from __future__ import annotations

import dataclasses
from functools import cache

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.machine import Machine, this_machine
from tests.support.depth import dear_examples

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.int4_ops import Int4CpuOps
from gpu_workers.cpu.kernels import int4_weights, int8_weights
from tests.support.kernels.integer_products import DTYPES, INPUTS, OUTPUTS, ROWS, numbers, rounded

pytestmark = pytest.mark.slow


@cache
def all_ops(dtype: torch.dtype) -> list[Int4CpuOps]:
    """Of this processor first; of the same without its dot product of bytes; with short vectors."""
    machine = this_machine()
    assert machine is not None
    machines = [machine, dataclasses.replace(machine, has_int8_dot=False), Machine(8, 16, is_x86=machine.is_x86)]
    return [Int4CpuOps(dtype, one) for one in machines]


@dear_examples(60)
@given(ROWS, INPUTS, OUTPUTS, st.sampled_from(DTYPES), st.booleans())
def test_the_product_is_that_of_the_rounded_numbers(n: int, n_in: int, n_out: int, dtype: torch.dtype, has_bias: bool) -> None:
    x, weight, bias = numbers(n, n_in, seed=n).to(dtype), numbers(n_out, n_in, seed=n_in), numbers(n_out, seed=n_out).to(dtype)
    ops = all_ops(dtype)[0]
    packed = ops.pack(weight)
    out = ops.linear(x, ops.linear_weight(packed), bias if has_bias else None)
    exact = rounded(x) @ int4_weights.unpack(packed).double().T
    expected = exact.to(dtype).double() + (bias.double() if has_bias else 0.0)
    assert (out.shape, out.dtype) == ((n, n_out), dtype)
    near = 1e-5 if dtype == torch.float32 else 2e-2
    terms = x.double().abs().sum(1).max() * weight.double().abs().max()  # large ones may add up to a small number
    atol = near * max(exact.abs().max().item(), 1e-3) + 1e-6 * terms.item()
    torch.testing.assert_close(out.double(), expected, atol=atol, rtol=near)


@dear_examples(60)
@given(ROWS, INPUTS, OUTPUTS, st.sampled_from(DTYPES), st.data())
def test_a_row_has_the_same_bits_alone_and_on_any_processor(
    n: int, n_in: int, n_out: int, dtype: torch.dtype, data: st.DataObject
) -> None:
    x, packed = numbers(n, n_in, seed=n).to(dtype), int4_weights.pack(numbers(n_out, n_in, seed=n_in))
    expected, *others = (ops.linear(x, ops.linear_weight(packed), None) for ops in all_ops(dtype))
    assert [other.equal(expected) for other in others] == [True] * len(others)
    row, ops = data.draw(st.integers(0, n - 1), "row"), all_ops(dtype)[0]
    assert ops.linear(x[row : row + 1], ops.linear_weight(packed), None).equal(expected[row : row + 1])


@dear_examples(40)
@given(INPUTS, OUTPUTS)
def test_a_weight_is_rounded_by_half_a_step_at_most(n_in: int, n_out: int) -> None:
    weight = numbers(n_out, n_in, seed=n_in)
    packed = int4_weights.pack(weight)
    assert (packed.numel(), int8_weights.read_shape(packed)) == (int4_weights.packed_size(n_out, n_in), (n_out, n_in))
    assert int4_weights.pack(weight.to("meta")).shape == packed.shape
    groups = torch.nn.functional.pad(weight, (0, -n_in % int8_weights.GROUP)).view(n_out, -1, int8_weights.GROUP)
    steps = (groups.amax(-1) - groups.amin(-1)) / int4_weights.GREATEST
    largest = groups.abs().amax(-1)
    most = (0.501 * steps + 1e-3 * largest).repeat_interleave(int8_weights.GROUP, 1)[:, :n_in]
    assert ((int4_weights.unpack(packed) - weight).abs() <= most + 1e-6).all(), "float16 rounds by one part in 2,048"


def test_blocks_of_a_gguf_file_keep_their_values() -> None:
    """Q4_1: packing their floating-point values finds the integers again."""
    kind = gguf.GGMLQuantizationType.Q4_1
    values = gguf.dequantize(gguf.quantize(numbers(200, 320, seed=3).numpy(), kind), kind)
    weight = torch.from_numpy(values)
    assert int4_weights.unpack(int4_weights.pack(weight)).equal(weight)


def test_zeros_and_equal_numbers_stay() -> None:
    for number in (0.0, -1.5):
        assert int4_weights.unpack(int4_weights.pack(torch.full((3, 32), number))).eq(number).all()


def test_the_head_keeps_eight_bits() -> None:
    ops, weight, x = all_ops(torch.float32)[0], numbers(130, 96, seed=0), numbers(5, 96, seed=1)
    packed = ops.pack_head(weight)
    assert packed.equal(int8_weights.pack(weight))
    expected = (rounded(x) @ int8_weights.unpack(packed).double().T).float()
    torch.testing.assert_close(ops.linear(x, ops.linear_weight(packed), None), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e6])
def test_what_float16_cannot_hold_is_no_number_in_the_result(wrong: float) -> None:
    x, weight = numbers(2, 96, seed=0), numbers(64, 96, seed=1)
    weight[1, 40] = wrong
    for ops in all_ops(torch.float32):
        out = ops.linear(x, ops.pack_linear(weight), None)
        assert not out[:, 1].isfinite().any()
        assert out[:, 2].isfinite().all()
