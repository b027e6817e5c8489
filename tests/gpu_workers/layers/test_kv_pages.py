"""Allocation and layout of the physical pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
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


def test_pages_of_a_cpu_take_no_memory_before_they_are_used() -> None:
    """Writing gigabytes of zeros was most of a rank's start."""
    before_bytes = _resident_bytes()
    kv = KvPages.allocate(SHAPE, (256 << 20) // SHAPE.bytes_per_page, "cpu")
    assert kv.storage.nbytes > 250 << 20
    assert _resident_bytes() - before_bytes < 64 << 20
    assert kv.storage.data_ptr() % 64 == 0
    assert not kv.keys[0][:100].any()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
