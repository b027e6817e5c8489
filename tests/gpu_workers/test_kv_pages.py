"""Allocation, layout and copies of the physical pages."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.kv_pages import KvPages, KvShape
from messages.steps import PAGE_TOKENS

SHAPE = KvShape(n_layers=3, n_kv_heads=2, head_dim=4, dtype=torch.float32)


def test_bytes_and_views() -> None:
    kv = KvPages.allocate(SHAPE, 5, "cpu")
    assert kv.n_pages == 5
    assert kv.storage.nbytes == 5 * SHAPE.bytes_per_page
    assert [tuple(pages.shape) for pages in (*kv.keys, *kv.values)] == [(5, PAGE_TOKENS, 2, 4)] * 6
    kv.values[2][4, 15] = 7.0
    assert kv.storage[2, 1, 4, 15].eq(7.0).all()
    assert kv.storage.count_nonzero() == 8


def test_memory_of_others_must_fit() -> None:
    storage = torch.zeros((3, 2, 4, PAGE_TOKENS, 2, 4))
    assert KvPages.over(SHAPE, storage).keys[1].data_ptr() == storage[1, 0].data_ptr()
    with pytest.raises(ValueError, match="storage: expected contiguous"):
        KvPages.over(SHAPE, storage[:, :, :, :8])
    with pytest.raises(ValueError, match="n_pages"):
        KvPages.allocate(SHAPE, 0, "cpu")


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=7, unique_by=lambda pair: pair[1]))
def test_copies_read_before_they_write(pairs: list[tuple[int, int]]) -> None:
    kv = KvPages.allocate(SHAPE, 7, "cpu")
    kv.storage.copy_(torch.arange(kv.storage.numel()).view_as(kv.storage))
    before = kv.storage.clone()
    sources, targets = (torch.tensor([pair[i] for pair in pairs], dtype=torch.int64) for i in (0, 1))
    kv.copy_pages(sources, targets)
    source_of = {target: source for source, target in pairs}
    for page in range(7):
        assert kv.storage[:, :, page].equal(before[:, :, source_of.get(page, page)])
