"""The compiled kernels over pages of 8-bit integers against torch: what is written, what is attended to, and programs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.machine import Machine, this_machine
from gpu_workers.layers.page_format import scales_of
from messages.steps import PAGE_TOKENS

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.attention import CpuAttention, CpuStep
from gpu_workers.cpu.kernels.machine_code import compile_kernel
from gpu_workers.cpu.kernels.pages.paged_attention import LOG2_E, AttentionShape, write_paged_attention
from gpu_workers.cpu.kernels.vector_code import float_bits
from gpu_workers.runner.backend import cpu_ops
from tests.support.depth import dear_examples
from tests.support.workers.dense_attention import (
    assert_alike_in_any_company,
    dense_attention,
    paged_rows,
    quantised,
    rows_of_a_step,
    widened,
)
from tests.support.workers.stored_pages import stored_by_both

DTYPES = (torch.float32, torch.bfloat16)
OPS = {dtype: cpu_ops(dtype, torch.int8) for dtype in DTYPES}
HEADS = [(1, 1, 32), (2, 1, 64), (3, 3, 64), (2, 5, 128)]  # kv heads, query heads on each, head_dim
_KNOWN: dict[tuple[tuple[int, int, int], torch.dtype], CpuAttention] = {}


def attention_of(heads: tuple[int, int, int], dtype: torch.dtype) -> CpuAttention:
    kv_heads, shared, head_dim = heads
    if (heads, dtype) not in _KNOWN:
        _KNOWN[heads, dtype] = CpuAttention(dtype, shared, kv_heads, head_dim, torch.int8)
    return _KNOWN[heads, dtype]


@dear_examples(40)
@given(st.integers(1, 40), st.sampled_from(HEADS), st.sampled_from(DTYPES), st.sampled_from([1.0, 1e-3, 1e4]))
def test_rope_and_store(n_tokens: int, heads: tuple[int, int, int], dtype: torch.dtype, size: float) -> None:
    wanted, got = stored_by_both(OPS[dtype], torch.int8, n_tokens, heads, dtype, size)
    assert got.values[1].equal(wanted.values[1])
    assert scales_of(got.values[1]).equal(scales_of(wanted.values[1]))
    steps = scales_of(wanted.keys[1]).transpose(1, 2)[..., None].float()
    difference = (widened(got.keys[1]) - widened(wanted.keys[1])).abs()
    assert difference.le(2 * steps).all()  # torch rounds keys to bfloat16 before it quantises them
    if dtype == torch.float32:
        assert got.keys[1].ne(wanted.keys[1]).float().mean() < 1e-3
    for layer in (0, 2):
        assert not any(part.any() for part in (got.keys[layer], got.values[layer], scales_of(got.values[layer])))


@pytest.mark.slow
@dear_examples(60)
@given(rows_of_a_step, st.sampled_from(HEADS), st.sampled_from(DTYPES), st.integers(1, 2))
def test_equals_dense_attention(
    rows: list[tuple[int, int]], heads: tuple[int, int, int], dtype: torch.dtype, threads: int
) -> None:
    kv_heads, shared, head_dim = heads
    step, k, v = paged_rows(rows, kv_heads, head_dim)
    k_pages, v_pages = quantised(k, v)
    q = torch.randn((step.n_tokens, kv_heads * shared, head_dim), generator=torch.Generator().manual_seed(5)).to(dtype)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out = attention_of(heads, dtype).prepare(step).attend(q, k_pages, v_pages, head_dim**-0.5)
    finally:
        torch.set_num_threads(before)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    expected = dense_attention(q.float(), widened(k_pages), widened(v_pages), step, head_dim**-0.5)
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


def test_what_other_sequences_left_in_a_page_is_not_read() -> None:
    step, k, v = paged_rows([(20, 1)], 3, 64)
    k_pages, v_pages = quantised(k, v)
    page, offset = int(step.page_table[0, 1]), 5  # the row's 21 keys end here
    scales_of(k_pages)[page, :, offset:], scales_of(v_pages)[page, :, offset:] = float("nan"), float("inf")
    q = torch.randn((1, 9, 64), generator=torch.Generator().manual_seed(5))
    assert attention_of((3, 3, 64), torch.float32).prepare(step).attend(q, k_pages, v_pages, 0.4).isfinite().all()


def test_a_token_is_computed_alike_in_any_company() -> None:
    step, k, v = paged_rows([(40, 1), (17, 1), (60, 3)], 3, 64)
    k_pages, v_pages = quantised(k, v)
    q = torch.randn((5, 9, 64), generator=torch.Generator().manual_seed(5))
    prepared = attention_of((3, 3, 64), torch.float32).prepare(step)
    assert isinstance(prepared, CpuStep)
    assert_alike_in_any_company(prepared, q, k_pages, v_pages)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="runs code for AVX2")
def test_narrow_vectors() -> None:
    shape = AttentionShape(6, 2, 64, is_bf16=False, is_int8=True)
    kernel = compile_kernel(lambda code: write_paged_attention(code, shape), Machine(8, 16), "haswell")
    step, k, v = paged_rows([(50, 1), (3, 1), (16, 1)], 2, 64)
    k_pages, v_pages = quantised(k, v)
    q = torch.randn((3, 6, 64), generator=torch.Generator().manual_seed(5))
    out, table = torch.empty_like(q), step.page_table.contiguous()
    order, n_keys, scratch = torch.arange(3), torch.tensor([51, 4, 17]), torch.empty(3 * 4 * PAGE_TOKENS)
    arrays = [q.data_ptr(), k_pages.data_ptr(), v_pages.data_ptr(), k_pages.stride(0), out.data_ptr(), table.data_ptr()]
    tokens = [order.data_ptr(), order.data_ptr(), n_keys.data_ptr(), scratch.data_ptr()]
    kernel([6, *arrays, table.shape[1], *tokens, len(scratch), float_bits(0.4 * LOG2_E)], run_units=6)
    expected = dense_attention(q, widened(k_pages), widened(v_pages), step, 0.4)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
