"""The torch back end against dense attention, for any mixture of rows, lengths and scattered pages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.attention import TorchAttention, group_rows
from tests.support.depth import dear_examples
from tests.support.workers.dense_attention import HEAD_DIM, dense_attention, paged_rows, rows_of_a_step


@pytest.mark.slow
@dear_examples(60)
@given(rows_of_a_step, st.sampled_from([(1, 1), (2, 1), (3, 3), (2, 4)]))
def test_equals_dense_attention(rows: list[tuple[int, int]], heads: tuple[int, int]) -> None:
    kv_heads, shared = heads
    step, k, v = paged_rows(rows, kv_heads)
    q = torch.randn((step.n_tokens, kv_heads * shared, HEAD_DIM), generator=torch.Generator().manual_seed(5))
    back_end = TorchAttention(torch.float32, shared, kv_heads)
    out = back_end.prepare(step).attend(q, k, v, 0.4)
    assert out.is_contiguous()
    torch.testing.assert_close(out, dense_attention(q, k, v, step, 0.4), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@dear_examples(60)
@given(rows_of_a_step, st.sampled_from([1, 2, 15, 16, 17, 33, 64]))
def test_a_window_hides_what_is_further_back(rows: list[tuple[int, int]], window: int) -> None:
    step, k, v = paged_rows(rows, kv_heads=2)
    q = torch.randn((step.n_tokens, 4, HEAD_DIM), generator=torch.Generator().manual_seed(5))
    out = TorchAttention(torch.float32, 2, 2).prepare(step, window).attend(q, k, v, 0.4)
    torch.testing.assert_close(out, dense_attention(q, k, v, step, 0.4, window), atol=1e-5, rtol=1e-5)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 4000)), min_size=1, max_size=60))
def test_groups_hold_each_row_once_and_pad_little(rows: list[tuple[int, int]]) -> None:
    counts = np.array([count for count, _ in rows])
    ends = np.array([start for _, start in rows]) + counts
    groups = group_rows(counts, ends)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(rows)))
    for group in groups:
        assert len(set(counts[group].tolist())) == 1
        assert (np.diff(group) > 0).all()
        padded, needed = int(ends[group].max()) * len(group), int(ends[group].sum())
        assert padded <= 1.5 * needed or padded - needed <= 256 or len(group) == 1


def test_like_rows_share_one_call() -> None:
    assert len(group_rows(np.ones(32, np.int32), np.full(32, 200))) == 1


def test_bfloat16_is_close() -> None:
    step, k, v = paged_rows([(40, 1), (17, 1), (0, 20), (5, 30)], 2, dtype=torch.bfloat16)
    q = torch.randn((step.n_tokens, 4, HEAD_DIM), generator=torch.Generator().manual_seed(5))
    back_end = TorchAttention(torch.bfloat16, 2, 2)
    out = back_end.prepare(step).attend(q.bfloat16(), k, v, 0.4)
    torch.testing.assert_close(out.float(), dense_attention(q, k.float(), v.float(), step, 0.4), atol=5e-2, rtol=5e-2)
