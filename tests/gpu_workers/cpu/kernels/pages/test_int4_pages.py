"""The compiled kernels over pages of small integers against torch: what is written, what is attended to, and programs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cpu.kernels.machine import Machine, this_machine
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import INT4, format_of
from gpu_workers.layers.small_pages import parts_of
from messages.steps import PAGE_TOKENS

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.attention import CpuAttention, CpuStep
from gpu_workers.cpu.kernels.machine_code import compile_kernel
from gpu_workers.cpu.kernels.pages.int4_attention import SmallUnit
from gpu_workers.cpu.kernels.pages.paged_attention import LOG2_E, AttentionShape, write_paged_attention
from gpu_workers.cpu.kernels.vector_code import float_bits
from gpu_workers.runner.backend import cpu_ops
from tests.support.depth import dear_examples
from tests.support.workers.dense_attention import assert_alike_in_any_company, dense_attention, paged_rows, rows_of_a_step
from tests.support.workers.stored_pages import stored_by_both

DTYPES = (torch.float32, torch.bfloat16)
OPS = {dtype: cpu_ops(dtype, INT4) for dtype in DTYPES}
HEADS = [(2, 1, 64), (3, 3, 64), (2, 5, 128)]  # kv heads, query heads on each, head_dim
_KNOWN: dict[tuple[tuple[int, int, int], torch.dtype], CpuAttention] = {}


def attention_of(heads: tuple[int, int, int], dtype: torch.dtype) -> CpuAttention:
    kv_heads, shared, head_dim = heads
    if (heads, dtype) not in _KNOWN:
        _KNOWN[heads, dtype] = CpuAttention(dtype, shared, kv_heads, head_dim, INT4)
    return _KNOWN[heads, dtype]


def small_rows(
    rows: list[tuple[int, int]], kv_heads: int, head_dim: int
) -> tuple[StepTensors, KvPages, torch.Tensor, torch.Tensor]:
    """A step of these rows, pages, and the keys and values that these stand for, as pages of float32."""
    step, k, v = paged_rows(rows, kv_heads, head_dim)
    kv = KvPages.allocate(KvShape(3, kv_heads, head_dim, INT4), k.shape[0], "cpu")
    pages = kv.keys[1], kv.values[1]
    format_of(INT4).store(*pages, torch.arange(k.shape[0] * PAGE_TOKENS), k.flatten(0, 1), v.flatten(0, 1))
    vectors, width = torch.arange(k.shape[0] * PAGE_TOKENS * kv_heads), PAGE_TOKENS * kv_heads
    read = format_of(INT4).gather(*pages, vectors // width, vectors % width, torch.float32)
    return step, kv, read[0].view(k.shape), read[1].view(v.shape)


@dear_examples(40)
@given(st.integers(1, 40), st.sampled_from(HEADS), st.sampled_from(DTYPES), st.sampled_from([0.0, 1.0, 1e-3, 1e4]))
def test_rope_and_store(n_tokens: int, heads: tuple[int, int, int], dtype: torch.dtype, size: float) -> None:
    """The same bytes as torch writes, but where a number falls between two codes."""
    wanted, got = stored_by_both(OPS[dtype], INT4, n_tokens, heads, dtype, size)
    for name in ("numbers", "planes", "scales"):
        ours, theirs = (getattr(parts_of(kv.values[1], is_key=False), name) for kv in (got, wanted))
        assert ours.equal(theirs)
        ours, theirs = (getattr(parts_of(kv.keys[1], is_key=True), name) for kv in (got, wanted))
        assert ours.ne(theirs).float().mean() < 0.02  # sums of two products are rounded once here and twice there
    for layer in (0, 2):
        assert not any(part.any() for part in (got.keys[layer], got.values[layer]))


@pytest.mark.slow
@dear_examples(60)
@given(rows_of_a_step, st.sampled_from(HEADS), st.sampled_from(DTYPES), st.integers(1, 2))
def test_equals_dense_attention(
    rows: list[tuple[int, int]], heads: tuple[int, int, int], dtype: torch.dtype, threads: int
) -> None:
    kv_heads, shared, head_dim = heads
    step, kv, k, v = small_rows(rows, kv_heads, head_dim)
    q = torch.randn((step.n_tokens, kv_heads * shared, head_dim), generator=torch.Generator().manual_seed(5)).to(dtype)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out = attention_of(heads, dtype).prepare(step).attend(q, kv.keys[1], kv.values[1], head_dim**-0.5)
    finally:
        torch.set_num_threads(before)
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    expected = dense_attention(q.float(), k, v, step, head_dim**-0.5)
    torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)


def test_what_other_sequences_left_in_a_page_is_not_read() -> None:
    step, kv, _, _ = small_rows([(20, 1)], 3, 64)
    page, offset = int(step.page_table[0, 1]), 5  # the row's 21 keys end here
    q = torch.randn((1, 9, 64), generator=torch.Generator().manual_seed(5))
    prepared = attention_of((3, 3, 64), torch.float32).prepare(step)
    before = prepared.attend(q, kv.keys[1], kv.values[1], 0.4)
    for pages, is_key in ((kv.keys[1], True), (kv.values[1], False)):
        parts = parts_of(pages, is_key=is_key)
        parts.numbers[page, offset:] = parts.planes[page, offset:] = 255
        parts.scales[page, :, :, offset:] = 255
    assert prepared.attend(q, kv.keys[1], kv.values[1], 0.4).equal(before)


def test_a_token_is_computed_alike_in_any_company() -> None:
    step, kv, _, _ = small_rows([(40, 1), (17, 1), (60, 3)], 3, 64)
    q = torch.randn((5, 9, 64), generator=torch.Generator().manual_seed(5))
    prepared = attention_of((3, 3, 64), torch.float32).prepare(step)
    assert isinstance(prepared, CpuStep)
    assert_alike_in_any_company(prepared, q, kv.keys[1], kv.values[1])


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="runs code for AVX2")
def test_narrow_vectors() -> None:
    shape = AttentionShape(6, 2, 64, is_bf16=False)
    kernel = compile_kernel(lambda code: write_paged_attention(code, shape, SmallUnit), Machine(8, 16), "haswell")
    step, kv, k, v = small_rows([(50, 1), (3, 1), (16, 1)], 2, 64)
    k_pages, v_pages = kv.keys[1], kv.values[1]
    q = torch.randn((3, 6, 64), generator=torch.Generator().manual_seed(5))
    out, table = torch.empty_like(q), step.page_table.contiguous()
    order, n_keys, scratch = torch.arange(3), torch.tensor([51, 4, 17]), torch.empty(6 * 4 * PAGE_TOKENS)
    arrays = [q.data_ptr(), k_pages.data_ptr(), v_pages.data_ptr(), k_pages.stride(0), out.data_ptr(), table.data_ptr()]
    tokens = [order.data_ptr(), order.data_ptr(), n_keys.data_ptr(), scratch.data_ptr()]
    kernel([6, *arrays, table.shape[1], *tokens, len(scratch), float_bits(0.4 * LOG2_E)], run_units=6)
    expected = dense_attention(q, k, v, step, 0.4)
    torch.testing.assert_close(out, expected, atol=2e-5, rtol=2e-5)
