"""Allocation and layout of the physical pages."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.layers import kv_pages
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import page_rows, rows_between_pages
from messages.steps import PAGE_TOKENS

SHAPE = KvShape(n_layers=3, n_kv_heads=2, head_dim=4, dtype=torch.float32)


def test_bytes_and_views() -> None:
    kv = KvPages.allocate(SHAPE, 5, "cpu")
    assert kv.n_pages == 5
    assert kv.storage.nbytes == 5 * SHAPE.bytes_per_page
    assert [tuple(pages.shape) for pages in (*kv.keys, *kv.values)] == [(5, PAGE_TOKENS, 2, 4)] * 6
    kv.values[2][4, 15] = 7.0
    assert kv.storage[4, 2, 1, 15].eq(7.0).all()
    assert kv.storage.count_nonzero() == 8


def test_memory_of_others_must_fit() -> None:
    storage = torch.zeros((4, 3, 2, PAGE_TOKENS, 2, 4))
    assert KvPages.over(SHAPE, storage).keys[1].data_ptr() == storage[0, 1, 0].data_ptr()
    with pytest.raises(ValueError, match="storage: expected contiguous"):
        KvPages.over(SHAPE, storage[:, :, :, :8])
    with pytest.raises(ValueError, match="n_pages"):
        KvPages.allocate(SHAPE, 0, "cpu")


def test_a_page_is_one_stretch_of_memory_with_all_layers() -> None:
    kv = KvPages.allocate(SHAPE, 5, "cpu")
    for pages in (*kv.keys, *kv.values):
        pages[3] = 1.0
    assert kv.storage[3].is_contiguous()
    assert kv.storage[3].nbytes == SHAPE.bytes_per_page
    assert kv.storage[3].eq(1.0).all()
    assert kv.storage.count_nonzero() == kv.storage[3].numel()


@pytest.fixture
def device() -> str:
    return "cpu"


@pytest.mark.parametrize("n_copies", [0, 1, 3, 10])
def test_copies_of_pages(device: str, n_copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_pages, "_MOST_COPIED_BYTES", 3 * SHAPE.bytes_per_page)  # on a GPU, in pieces of three pages
    kv = KvPages.allocate(SHAPE, 20, device)
    kv.storage.copy_(torch.arange(kv.storage.numel()).view(kv.storage.shape))
    expected = kv.storage.cpu().clone()
    sources, targets = np.arange(10, dtype=np.int32)[:n_copies] % 4, np.arange(19, 9, -1, dtype=np.int32)[:n_copies]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        expected[target] = expected[source]
    kv.copy(sources, targets)
    assert kv.storage.cpu().equal(expected)


def test_an_8b_page_of_16_bits_is_two_mebibytes() -> None:
    assert KvShape(n_layers=32, n_kv_heads=8, head_dim=128, dtype=torch.bfloat16).bytes_per_page == 2 << 20


@pytest.mark.parametrize("width", [4, 8])
def test_rows_of_a_layer_are_found_by_page(width: int) -> None:
    kv = KvPages.allocate(SHAPE, 5, "cpu")
    kv.storage.copy_(torch.arange(kv.storage.numel()).view(kv.storage.shape))
    values = kv.values[1]
    rows = page_rows(values, width)
    for page in range(5):
        first = page * rows_between_pages(values, width)
        assert rows[first : first + values[page].numel() // width].equal(values[page].view(-1, width))


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
