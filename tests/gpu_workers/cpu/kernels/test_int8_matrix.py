"""Products of 8-bit integers: what they compute, and that neither batch nor processor changes a bit of it."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.machine import Machine, this_machine
from tests.support.depth import dear_examples

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.int8_ops import Int8CpuOps
from gpu_workers.cpu.kernels import int8_weights
from tests.support.kernels.integer_products import DTYPES, INPUTS, OUTPUTS, ROWS, numbers, rounded

pytestmark = pytest.mark.slow


@cache
def all_ops(dtype: torch.dtype) -> list[Int8CpuOps]:
    """Of this processor first; of the same without its dot product of bytes; with short vectors; with neither."""
    machine = this_machine()
    assert machine is not None
    short = Machine(8, 16, is_x86=machine.is_x86)
    machines = [machine, dataclasses.replace(machine, has_int8_dot=False), short]
    machines += [dataclasses.replace(short, has_int8_dot=True)] if machine.has_int8_dot and machine.lanes == 16 else []
    return [Int8CpuOps(dtype, one) for one in machines]


@dear_examples(60)
@given(ROWS, INPUTS, OUTPUTS, st.sampled_from(DTYPES), st.booleans())
def test_the_product_is_that_of_the_rounded_numbers(n: int, n_in: int, n_out: int, dtype: torch.dtype, has_bias: bool) -> None:
    x, weight, bias = numbers(n, n_in, seed=n).to(dtype), numbers(n_out, n_in, seed=n_in), numbers(n_out, seed=n_out).to(dtype)
    ops = all_ops(dtype)[0]
    packed = ops.pack(weight)
    out = ops.linear(x, ops.linear_weight(packed), bias if has_bias else None)
    exact = rounded(x) @ int8_weights.unpack(packed).double().T
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
    x, weight = numbers(n, n_in, seed=n).to(dtype), numbers(n_out, n_in, seed=n_in)
    packed = int8_weights.pack(weight)
    expected, *others = (ops.linear(x, ops.linear_weight(packed), None) for ops in all_ops(dtype))
    assert [other.equal(expected) for other in others] == [True] * len(others)
    row, ops = data.draw(st.integers(0, n - 1), "row"), all_ops(dtype)[0]
    assert ops.linear(x[row : row + 1], ops.linear_weight(packed), None).equal(expected[row : row + 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_need_not_follow_each_other(dtype: torch.dtype) -> None:
    ops, wide = all_ops(dtype)[0], numbers(9, 100, seed=0).to(dtype)
    weight = ops.pack_linear(numbers(70, 64, seed=1))
    expected = ops.linear(wide[:, :64].contiguous(), weight, None)
    assert ops.linear(wide[:, :64], weight, None).equal(expected)
    assert ops.linear(wide[:, :64].T.contiguous().T, weight, None).equal(expected)
    assert ops.linear(wide[:0, :64], weight, None).shape == (0, 70)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(wrong: float) -> None:
    """Integers have no such value; the scales carry it on."""
    x, weight = numbers(2, 96, seed=0), numbers(64, 96, seed=1)
    for broken in (x, weight):
        before = broken[1, 40].item()
        broken[1, 40] = wrong
        for ops in all_ops(torch.float32):
            out = ops.linear(x, ops.pack_linear(weight), None)
            assert not (out[1] if broken is x else out[:, 1]).isfinite().any()
            assert (out[0] if broken is x else out[:, 2]).isfinite().all()
        broken[1, 40] = before


@dear_examples(40)
@given(INPUTS, OUTPUTS, st.sampled_from(DTYPES))
def test_a_weight_is_rounded_by_half_a_scale_at_most(n_in: int, n_out: int, dtype: torch.dtype) -> None:
    weight = numbers(n_out, n_in, seed=n_in).to(dtype)
    packed = int8_weights.pack(weight)
    assert (packed.numel(), int8_weights.read_shape(packed)) == (int8_weights.packed_size(n_out, n_in), (n_out, n_in))
    assert int8_weights.pack(weight.to("meta")).shape == packed.shape
    groups = torch.nn.functional.pad(weight.float(), (0, -n_in % int8_weights.GROUP)).view(n_out, -1, int8_weights.GROUP)
    scales = (groups.abs().amax(-1) / int8_weights.GREATEST).repeat_interleave(int8_weights.GROUP, 1)[:, :n_in]
    error = (int8_weights.unpack(packed) - weight.float()).abs()
    assert (error <= scales * 0.76).all(), "half a scale; a greatest number may lie a quarter above 127 of the rounded scale"


def test_zeros_stay_zeros() -> None:
    assert not int8_weights.unpack(int8_weights.pack(torch.zeros(3, 5))).any()
