"""Pages that come back from compressed places are near what they were, and lose nothing when that happens again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.int4_places import Int4Places
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import FP8, INT4, format_of
from gpu_workers.layers.small_integers import halves_of, quantise, quantise_again, restored
from gpu_workers.layers.small_pages import KEY_LEVELS, VALUE_LEVELS
from gpu_workers.vault.host_pages import HostPages
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s
from tests.support.depth import examples

_LAYERS, _HEADS = 3, 2
_DTYPES = [torch.float32, torch.bfloat16, torch.int8, FP8]


def _filled(dtype: torch.dtype, width: int, seed: int, scale: float) -> KvPages:
    """Two pages of vectors with some great numbers, as keys have."""
    kv, numbers = KvPages.allocate(KvShape(_LAYERS, _HEADS, width, dtype), 2, "cpu"), torch.Generator().manual_seed(seed)
    for layer in range(_LAYERS):
        k, v = torch.randn(2, 2 * PAGE_TOKENS, _HEADS, width, generator=numbers) * scale
        k[..., seed % width] *= 8
        format_of(dtype).store(kv.keys[layer], kv.values[layer], torch.arange(2 * PAGE_TOKENS), k, v)
    return kv


def _vectors(kv: KvPages, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a page, [n, width] float32 each."""
    n, dtype = PAGE_TOKENS * _HEADS, kv.shape.dtype
    read = dtype if dtype.is_floating_point and dtype != FP8 else torch.float32
    pages, places = torch.full((n,), page), torch.arange(n)
    parts = [format_of(dtype).gather(k, v, pages, places, read) for k, v in zip(kv.keys, kv.values, strict=True)]
    keys, values = (torch.cat([part[which] for part in parts]).float() for which in (0, 1))
    return keys, values


def _come_back(kv: KvPages, form: Int4Places) -> None:
    """Both pages go to places and come back."""
    tier, both, hashes = HostPages(kv.as_bytes(), 2, form), int32s([0, 1]), uint64s([5, 6])
    tier.store(both, both, hashes)
    kv.storage.view(torch.uint8).zero_()
    assert not tier.load(both, both, hashes)


@examples(15)
@given(st.sampled_from(_DTYPES), st.sampled_from([32, 64, 128]), st.integers(0, 1000), st.sampled_from([1e-2, 1.0, 50.0]))
def test_numbers_stay_within_a_cell_and_do_not_drift(dtype: torch.dtype, width: int, seed: int, scale: float) -> None:
    """In the transformed halves an error is at most half a cell of the greatest scale that may be chosen, and the rounding of
    the page's own format."""
    kv = _filled(dtype, width, seed, scale)
    form, before = Int4Places(kv.shape), [_vectors(kv, page) for page in (0, 1)]
    _come_back(kv, form)
    once = [_vectors(kv, page) for page in (0, 1)]
    for was, now in zip(before, once, strict=True):
        for one, other, levels in zip(was, now, (KEY_LEVELS, VALUE_LEVELS), strict=True):
            halves, changed = halves_of(one), halves_of(other)
            codes, scales = quantise(halves, levels)
            plain = (restored(codes, scales, levels) - halves).square().sum()
            rounded = 2 * (halves.square().sum() * (0.07 if dtype == FP8 else 0.02) ** 2)  # of the page's own format
            assert (changed - halves).square().sum() <= 1.001 * plain + rounded, "no further than with --kv-dtype int4"
    for _ in range(4):
        _come_back(kv, form)
    for was, now in zip(once, (_vectors(kv, page) for page in (0, 1)), strict=True):
        for one, other in zip(was, now, strict=True):
            assert (other - one).norm() <= 0.06 * one.norm() if dtype == FP8 else 0.02 * one.norm()


@examples(50)
@given(st.integers(0, 10_000), st.sampled_from([KEY_LEVELS, VALUE_LEVELS]), st.floats(1e-4, 1000.0))
def test_restored_numbers_get_their_codes_again(seed: int, levels: int, scale: float) -> None:
    halves = torch.randn(20, 32, generator=torch.Generator().manual_seed(seed)) * scale
    codes, scales = quantise_again(halves, levels)
    first = restored(codes, scales, levels)
    again = restored(*quantise_again(first, levels), levels)
    assert torch.allclose(again, first, rtol=1e-6, atol=0)


def test_extreme_vectors() -> None:
    """Zeros stay small. Equal numbers, which the transform makes one great number, stay near."""
    for value in (0.0, 1e-9, 100.0):
        kv = _filled(torch.float32, 32, 1, 1.0)
        kv.storage[:] = value
        _come_back(kv, Int4Places(kv.shape))
        assert (kv.storage - value).norm() <= max(1e-3, 0.15 * value * kv.storage.numel() ** 0.5)


@pytest.mark.parametrize(("dtype", "ratio"), [(torch.int8, 1.83), (torch.bfloat16, 3.55), (torch.float32, 7.11)])
def test_how_much_smaller_a_place_is(dtype: torch.dtype, ratio: float) -> None:
    """Heads of 64 numbers."""
    form = Int4Places(KvShape(30, 3, 64, dtype))
    assert form.place_bytes == 103_680
    assert form.page_bytes / form.place_bytes == pytest.approx(ratio, abs=0.01)


def test_other_heads_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^worker\.host_cache_dtype: expected same for this model.*heads of 80$"):
        Int4Places(KvShape(3, 2, 80, torch.bfloat16))


def test_a_place_is_a_page_of_int4() -> None:
    """So tools that read such pages read places, too. Scales may be others."""
    kv = _filled(torch.float32, 64, 3, 1.0)
    form = Int4Places(kv.shape)
    place = np.empty(form.place_bytes, np.uint8)
    form.compress(kv.as_bytes()[0], place)
    small = KvPages.over(
        dataclasses.replace(kv.shape, dtype=INT4),
        torch.from_numpy(place).view(1, *dataclasses.replace(kv.shape, dtype=INT4).page_sizes),
    )
    for was, now in zip(_vectors(kv, 0), _vectors(small, 0), strict=True):
        assert (was - now).norm() <= 0.2 * was.norm()
