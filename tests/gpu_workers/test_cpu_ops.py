"""The compiled operations of CPUs against torch's, in both dtypes; and weights whose layout they do not know."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_workers.cpu_kernels.machine import this_machine
from gpu_workers.cpu_linear import can_pack, pack_weight
from gpu_workers.models.registry import cpu_ops
from gpu_workers.torch_ops import TorchOps

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu_ops import CpuOps, PackedWeight, has_known_layout

PLAIN = TorchOps()
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])


@cache
def ops_of(dtype: torch.dtype, has_bf16_dot: bool = True) -> CpuOps:
    machine = this_machine()
    assert machine is not None
    return CpuOps(dtype, dataclasses.replace(machine, has_bf16_dot=machine.has_bf16_dot and has_bf16_dot))


def near(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 2e-2


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 70), st.integers(1, 3), st.booleans(), DTYPES, st.booleans())
def test_linear_at_any_number_of_rows(rows: int, blocks: int, has_bias: bool, dtype: torch.dtype, has_dot: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    sizes = ((rows, 50), (64 * blocks, 50), (64 * blocks,))
    x, weight, bias = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    ops = ops_of(dtype, has_dot)
    out = ops.linear(x, ops.pack_linear(weight), bias if has_bias else None)
    expected = x.double() @ weight.double().T + (bias.double() if has_bias else 0.0)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, atol=near(dtype) * 10, rtol=near(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_computed_alike_in_any_company(dtype: torch.dtype) -> None:
    ops, generator = ops_of(dtype), torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=generator).to(dtype) for size in ((64, 96), (128, 96)))
    packed = ops.pack_linear(weight)
    if not isinstance(packed, PackedWeight) or ops.most_rows < 64:
        pytest.skip("the kernel does not compute so many rows here")
    whole = ops.linear(x, packed, None)
    assert all(ops.linear(x[row : row + 1], packed, None).equal(whole[row : row + 1]) for row in range(64))


@pytest.mark.parametrize("shape", [(64, 33), (40, 48), (65, 16)])
def test_a_weight_in_another_layout_goes_to_torch(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    ops = ops_of(torch.bfloat16)
    packed = ops.pack_linear(weight)
    assert not isinstance(packed, PackedWeight)
    x = torch.randn(2, shape[1], generator=torch.Generator().manual_seed(1)).bfloat16()
    torch.testing.assert_close(ops.linear(x, packed, None), x @ weight.T, atol=0.1, rtol=2e-2)


def test_a_layout_is_recognised_by_its_bytes() -> None:
    if not can_pack(torch.float32):
        pytest.skip("oneDNN packs nothing here")
    weight = torch.randn(128, 32, generator=torch.Generator().manual_seed(0))
    packed = pack_weight(weight)
    assert has_known_layout(weight, packed) == isinstance(ops_of(torch.float32).pack_linear(weight), PackedWeight)
    assert not has_known_layout(weight + 1, packed)
    assert not has_known_layout(weight, weight)


def test_other_dtypes_are_torch() -> None:
    assert type(cpu_ops(torch.float16)) is TorchOps
    assert isinstance(cpu_ops(torch.float32), CpuOps)
