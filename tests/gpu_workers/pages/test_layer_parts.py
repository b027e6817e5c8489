"""Loads come in parts that are copied sooner than they are queued, and that cover each layer once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.pages.copy_runs import CopyRun
from gpu_workers.pages.layer_parts import LayerPart, copied_together, layer_parts

_PAGE_BYTES = 2 << 20  # of Llama-8B


def test_the_last_parts_are_small() -> None:
    sizes = [part.end - part.first for part in layer_parts(32, 64 << 10)]
    assert sizes == [4, 4, 4, 4, 4, 4, 2, 2, 1, 1, 1, 1]
    assert [part.end - part.first for part in layer_parts(31, 12 << 10)] == [3] * 9 + [4]
    assert layer_parts(2, 1 << 10) == [LayerPart(0, 2)]


@given(st.integers(1, 130), st.integers(1, 1 << 20))
def test_parts_have_each_layer_once(n_layers: int, layer_bytes: int) -> None:
    parts = layer_parts(n_layers, layer_bytes)
    assert [layer for part in parts for layer in range(*part)] == list(range(n_layers))
    assert len(parts) <= 24
    assert len(parts) == 1 or all((part.end - part.first) * layer_bytes >= 32 << 10 for part in (parts[0], parts[-1]))


def test_pages_beside_each_other_come_part_by_part() -> None:
    parts, runs = layer_parts(32, 64 << 10), [CopyRun(16 * i, 16 * i, 16) for i in range(16)]
    assert copied_together(parts, runs, _PAGE_BYTES) == [[part] for part in parts]


def test_scattered_pages_come_in_few_groups() -> None:
    parts, runs = layer_parts(32, 64 << 10), [CopyRun(2 * i, 3 * i, 1) for i in range(255)]
    groups = copied_together(parts, runs, _PAGE_BYTES)
    assert [len(group) for group in groups] == [3, 3, 3, 3]


def test_a_small_load_comes_whole() -> None:
    assert len(copied_together(layer_parts(32, 64 << 10), [CopyRun(0, 0, 7)], _PAGE_BYTES)) == 1
    assert len(copied_together(layer_parts(32, 64 << 10), [], _PAGE_BYTES)) == 1


@given(st.integers(1, 130), st.lists(st.integers(1, 16), min_size=1, max_size=300), st.integers(1 << 12, 1 << 22))
def test_groups_have_each_part_once_and_few_calls(n_layers: int, lengths: list[int], page_bytes: int) -> None:
    parts = layer_parts(n_layers, max(page_bytes // n_layers, 1))
    groups = copied_together(parts, [CopyRun(0, 0, n) for n in lengths], page_bytes)
    assert [part for group in groups for part in group] == parts
    assert all(before[-1].end == after[0].first for before, after in pairwise(groups))
    assert len(groups) == 1 or len(groups) * len(lengths) <= 4 * sum(lengths)
