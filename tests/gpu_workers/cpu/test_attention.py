"""The compiled attention of CPUs against dense attention: any rows, any heads, both dtypes, and code for narrower vectors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.machine import Machine, can_attend, this_machine
from gpu_workers.layers.attention import TorchAttention, TorchStep
from messages.steps import PAGE_TOKENS

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.attention import CpuAttention, CpuStep
from gpu_workers.cpu.kernels.machine_code import compile_kernel
from gpu_workers.cpu.kernels.pages.paged_attention import LOG2_E, AttentionShape, write_paged_attention
from gpu_workers.cpu.kernels.vector_code import float_bits
from tests.support.depth import dear_examples
from tests.support.workers.dense_attention import assert_alike_in_any_company, dense_attention, paged_rows, rows_of_a_step

HEADS = [(1, 1, 16), (2, 1, 64), (3, 3, 64), (2, 5, 128), (1, 16, 32)]  # kv heads, query heads on each, head_dim
_KNOWN: dict[tuple[int, int, int, torch.dtype], CpuAttention] = {}


def _back_end(heads: tuple[int, int, int], dtype: torch.dtype) -> CpuAttention:
    kv_heads, shared, head_dim = heads
    if (*heads, dtype) not in _KNOWN:
        _KNOWN[*heads, dtype] = CpuAttention(dtype, shared, kv_heads, head_dim)
    return _KNOWN[*heads, dtype]


@pytest.mark.slow
@dear_examples(60)
@given(rows_of_a_step, st.sampled_from(HEADS), st.sampled_from([torch.float32, torch.bfloat16]), st.integers(1, 2))
def test_equals_dense_attention(
    rows: list[tuple[int, int]], heads: tuple[int, int, int], dtype: torch.dtype, threads: int
) -> None:
    kv_heads, shared, head_dim = heads
    step, k, v = paged_rows(rows, kv_heads, head_dim, dtype)
    q = torch.randn((step.n_tokens, kv_heads * shared, head_dim), generator=torch.Generator().manual_seed(5))
    q = q.to(dtype)
    back_end = _back_end(heads, dtype)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out = back_end.prepare(step).attend(q, k, v, head_dim**-0.5)
    finally:
        torch.set_num_threads(before)
    assert out.is_contiguous()
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    expected = dense_attention(q.float(), k.float(), v.float(), step, head_dim**-0.5)
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


def test_what_other_sequences_left_in_a_page_is_not_read() -> None:
    step, k, v = paged_rows([(20, 1)], 3, 64)
    behind = int(step.page_table[0, 1]), 5  # the row's 21 keys end here
    k[behind[0], behind[1] :], v[behind[0], behind[1] :] = float("nan"), float("inf")
    q = torch.randn((1, 9, 64), generator=torch.Generator().manual_seed(5))
    back_end = _back_end((3, 3, 64), torch.float32)
    assert back_end.prepare(step).attend(q, k, v, 0.4).isfinite().all()


def test_a_token_is_computed_alike_in_any_company() -> None:
    step, k, v = paged_rows([(40, 1), (17, 1), (60, 3)], 3, 64)
    q = torch.randn((5, 9, 64), generator=torch.Generator().manual_seed(5))
    prepared = _back_end((3, 3, 64), torch.float32).prepare(step)
    assert isinstance(prepared, CpuStep)
    assert_alike_in_any_company(prepared, q, k, v)


def test_rows_longer_than_a_window_are_torchs() -> None:
    step, k, v = paged_rows([(30, 1), (50, 3)], 2, 64)
    q = torch.randn((4, 4, 64), generator=torch.Generator().manual_seed(5))
    back_end = _back_end((2, 2, 64), torch.float32)
    for window, kind in ((53, CpuStep), (52, TorchStep), (7, TorchStep)):
        prepared = back_end.prepare(step, window)
        assert type(prepared) is kind
        expected = dense_attention(q, k, v, step, 0.4, window)
        torch.testing.assert_close(prepared.attend(q, k, v, 0.4), expected, atol=1e-5, rtol=1e-5)


def test_large_scores_stay_finite() -> None:
    step, k, v = paged_rows([(300, 1)], 1, 16)
    q = torch.full((1, 1, 16), 500.0)
    out = _back_end((1, 1, 16), torch.float32).prepare(step).attend(q, k, v, 1.0)
    torch.testing.assert_close(out, dense_attention(q, k, v, step, 1.0), atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="runs code for AVX2")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_vectors(dtype: torch.dtype) -> None:
    shape = AttentionShape(6, 2, 64, dtype == torch.bfloat16)
    kernel = compile_kernel(lambda code: write_paged_attention(code, shape), Machine(8, 16), "haswell")
    step, k, v = paged_rows([(50, 1), (3, 1), (16, 1)], 2, 64, dtype)
    q = torch.randn((3, 6, 64), generator=torch.Generator().manual_seed(5))
    q = q.to(dtype)
    out, table = torch.empty_like(q), step.page_table.contiguous()
    order, n_keys, scratch = torch.arange(3), torch.tensor([51, 4, 17]), torch.empty(3 * 4 * PAGE_TOKENS)
    arrays = [q.data_ptr(), k.data_ptr(), v.data_ptr(), k.stride(0), out.data_ptr(), table.data_ptr()]
    tokens = [order.data_ptr(), order.data_ptr(), n_keys.data_ptr(), scratch.data_ptr()]
    kernel([6, *arrays, table.shape[1], *tokens, len(scratch), float_bits(0.4 * LOG2_E)], run_units=6)
    expected = dense_attention(q.float(), k.float(), v.float(), step, 0.4)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


def test_what_does_not_fit_goes_to_torch() -> None:
    assert not can_attend(torch.float16, 64)
    assert not can_attend(torch.float32, 20)
    with pytest.raises(ValueError, match="attention: expected"):
        CpuAttention(torch.float16, 1, 1, 64)
    assert isinstance(_back_end((1, 1, 16), torch.float32)._torch, TorchAttention)
