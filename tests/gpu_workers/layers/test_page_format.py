"""Pages of 8-bit numbers: how small they are, how near the numbers stay, and that torch attends over what they hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.attention import TorchAttention
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import FP8, format_of, quantise_fp8, quantise_fp8_keys, quantise_int8, scales_of
from messages.steps import PAGE_TOKENS
from tests.support.depth import examples
from tests.support.workers.dense_attention import (
    HEAD_DIM,
    dense_attention,
    paged_rows,
    quantised,
    rows_of_a_step,
    widened,
)

SMALL = pytest.mark.parametrize("small_dtype", [torch.int8, FP8], ids=str)


@SMALL
@pytest.mark.parametrize(("head_dim", "share"), [(64, 66 / 128), (128, 130 / 256)])
def test_a_page_takes_half_the_memory_scales_included(head_dim: int, share: float, small_dtype: torch.dtype) -> None:
    plain, small = (KvShape(30, 3, head_dim, dtype) for dtype in (torch.bfloat16, small_dtype))
    assert small.bytes_per_page == plain.bytes_per_page * share
    kv = KvPages.allocate(small, 5, "cpu")
    assert kv.storage.nbytes == 5 * small.bytes_per_page
    assert kv.keys[29].shape == kv.values[29].shape == (5, PAGE_TOKENS, 3, head_dim)


@SMALL
def test_layers_keys_values_and_scales_have_memory_of_their_own(small_dtype: torch.dtype) -> None:
    kv = KvPages.allocate(KvShape(3, 2, 8, small_dtype), 4, "cpu")
    parts = [*kv.keys, *kv.values]
    for number, pages in enumerate(parts):
        pages.fill_(number + 1)
        scales_of(pages).fill_(number + 1.0)
    for number, pages in enumerate(parts):
        assert pages.float().eq(number + 1).all()
        assert scales_of(pages).eq(number + 1.0).all()
    n_bytes = sum(pages.numel() + scales_of(pages).numel() * 2 for pages in parts)
    assert n_bytes == kv.storage.nbytes, "the parts fill the storage"


@examples(60)
@given(
    st.integers(1, 40),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.sampled_from([torch.int8, FP8]),
    st.integers(0, 99),
)
def test_what_is_read_is_near_what_was_written(n_tokens: int, dtype: torch.dtype, small_dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kv, small = KvPages.allocate(KvShape(3, 2, HEAD_DIM, small_dtype), 4, "cpu"), format_of(small_dtype)
    k, v = (torch.randn((n_tokens, 2, HEAD_DIM), generator=generator).to(dtype) * 7 for _ in range(2))
    slots = torch.randperm(4 * PAGE_TOKENS, generator=generator)[:n_tokens]
    small.store(kv.keys[1], kv.values[1], slots, k, v)
    for head in range(2):
        page_ids, places = slots // PAGE_TOKENS, slots % PAGE_TOKENS * 2 + head
        read = small.gather(kv.keys[1], kv.values[1], page_ids, places, torch.float32)
        for got, written in zip(read, (k, v), strict=True):
            wanted = written[:, head].float()
            greatest = wanted.abs().amax(-1, keepdim=True)
            step = greatest / 127 if small_dtype == torch.int8 else (wanted.abs() / 8).maximum(greatest / 256 / 2**9)
            assert (got - wanted).abs().le(step * 0.51 + 1e-6).all()
    others = torch.ones(4 * PAGE_TOKENS, dtype=torch.bool).index_fill(0, slots, value=False).view(4, PAGE_TOKENS)
    assert not kv.keys[1].float()[others].any()
    assert not scales_of(kv.values[1]).transpose(1, 2)[others].any()
    assert not any(pages.float().any() for pages in (kv.keys[0], kv.values[0], kv.keys[2], kv.values[2]))


def test_vectors_of_zeros_and_of_tiny_and_huge_numbers() -> None:
    numbers, scales = quantise_int8(torch.tensor([[0.0, 0.0], [1e-39, -1e-40], [3e38, -1e38], [-1.0, 0.25]]))
    assert numbers.tolist() == [[0, 0], [0, 0], [127, -42], [-127, 32]]
    assert scales[0] == 0
    assert scales.isfinite().all()
    numbers, scales = quantise_fp8(torch.tensor([[0.0, 0.0], [1e-39, -1e-40], [3e38, -1e38], [-1.0, 0.25]]))
    assert numbers.float().tolist() == [[0, 0], [0, 0], [448, -144], [-448, 112]]
    assert scales.isfinite().all()


def test_what_is_no_number_stays_none() -> None:
    """A fault in a vector is seen by those who read it."""
    for fault in (float("nan"), float("inf")):
        for quantise in (quantise_fp8, quantise_fp8_keys):
            numbers, scales = quantise(torch.tensor([[1.0, fault], [1.0, 2.0]]))
            assert (numbers.float() * scales[:, None].float()).isnan().any(1).tolist() == [True, False]


def test_the_scale_of_a_key_is_the_one_that_loses_least() -> None:
    """Of keys with few great numbers, as models have them, a third of the squared error goes."""
    keys = torch.randn((500, 64), generator=torch.Generator().manual_seed(3))
    keys[:, [5, 37]] *= 8
    errors = [
        (numbers.float() * scales[:, None].float() - keys).square().sum(-1)
        for numbers, scales in (quantise_fp8(keys), quantise_fp8_keys(keys))
    ]
    assert (errors[1] <= errors[0] * 1.1).all(), "but for the rounding of scales"
    assert errors[1].sum() < 0.72 * errors[0].sum()
    numbers, scales = quantise_fp8_keys(torch.tensor([[0.0, 0.0], [1e-39, -1e-40], [3e38, -1e38]]))
    assert numbers[:2].float().eq(0).all()
    assert scales.isfinite().all()


@SMALL
def test_copies_of_pages_have_their_scales(small_dtype: torch.dtype) -> None:
    kv = KvPages.allocate(KvShape(3, 2, 8, small_dtype), 6, "cpu")
    kv.storage.view(torch.int8).copy_(torch.randint(0, 60, kv.storage.shape, generator=torch.Generator().manual_seed(0)))
    kv.copy(np.array([1, 4], np.int32), np.array([2, 0], np.int32))
    for source, target in ((1, 2), (4, 0)):
        assert scales_of(kv.values[2])[target].equal(scales_of(kv.values[2])[source])
        assert kv.keys[0].float()[target].equal(kv.keys[0].float()[source])


@pytest.mark.slow
@examples(40)
@given(
    rows_of_a_step,
    st.sampled_from([(1, 1), (2, 2), (3, 3)]),
    st.sampled_from([None, 7, 40]),
    st.sampled_from([torch.int8, FP8]),
)
def test_torch_attends_over_them(
    rows: list[tuple[int, int]], heads: tuple[int, int], window: int | None, small_dtype: torch.dtype
) -> None:
    kv_heads, shared = heads
    step, k, v = paged_rows(rows, kv_heads)
    k_pages, v_pages = quantised(k, v, small_dtype)
    q = torch.randn((step.n_tokens, kv_heads * shared, HEAD_DIM), generator=torch.Generator().manual_seed(5))
    out = TorchAttention(torch.float32, shared, kv_heads).prepare(step, window).attend(q, k_pages, v_pages, 0.4)
    expected = dense_attention(q, widened(k_pages), widened(v_pages), step, 0.4, window or 10_000)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
