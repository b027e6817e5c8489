"""Whole pages of any format, compressed to places of small integers and expanded again, on the device.

`layers.int4_places` is the reference, and gives the same bytes: sums and differences run in its order, and products are not
fused with sums. Only the squares of errors are summed in another order, which decides between two scales that are as good.

A program has some vectors of one layer's keys or values, which follow one another in a page and, but for their scales, at a
place too.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton import knobs

from gpu_workers.cuda.kernels.pages.scaled_pages import rounded, scale_of, scale_places
from gpu_workers.layers.kv_pages import KvShape
from gpu_workers.layers.small_integers import DROPPED_BITS, FIRST_SCALE, GREATER_FACTOR, LAST_SCALE, NEIGHBOURS
from gpu_workers.layers.small_pages import KEY_LEVELS, KEY_PLANES, VALUE_LEVELS, VALUE_PLANES
from messages.steps import PAGE_TOKENS

_KEY_LEVELS, _VALUE_LEVELS = tl.constexpr(KEY_LEVELS), tl.constexpr(VALUE_LEVELS)
_KEY_PLANES, _VALUE_PLANES = tl.constexpr(KEY_PLANES), tl.constexpr(VALUE_PLANES)
_FIRST_SCALE, _LAST_SCALE, _DROPPED = tl.constexpr(FIRST_SCALE), tl.constexpr(LAST_SCALE), tl.constexpr(DROPPED_BITS)
_BELOW_HALF = tl.constexpr((1 << (DROPPED_BITS - 1)) - 1)
_SMALLER, _GREATER, _GREATEST = (tl.constexpr(step) for step in NEIGHBOURS)
_GREATER_FACTOR = tl.constexpr(GREATER_FACTOR)
_VECTORS = 16 if knobs.runtime.interpret else 4  # of one program
_WARPS = 1  # so that sums along a vector need no shared memory


@triton.jit
def _added_and_subtracted(x, ROWS: tl.constexpr, D: tl.constexpr, APART: tl.constexpr):
    """The sums and differences of numbers so far apart in rows [ROWS, D]; x itself where that leaves a half."""
    if APART < D // 2:
        pairs = tl.permute(tl.reshape(x, (ROWS, D // (2 * APART), 2, APART)), (0, 1, 3, 2))
        first, second = tl.split(pairs)
        x = tl.reshape(tl.permute(tl.join(first + second, first - second), (0, 1, 3, 2)), (ROWS, D))
    return x


@triton.jit
def _transformed(x, ROWS: tl.constexpr, D: tl.constexpr):
    """Rows [ROWS, D], float32, both halves of each transformed; its own inverse."""
    for stage in tl.static_range(8):  # up to heads of 512 numbers
        x = _added_and_subtracted(x, ROWS, D, 1 << stage)
    return x * (D // 2) ** -0.5


@triton.jit
def _scales_of_codes(codes):
    """What scale codes stand for, float32."""
    return ((codes + _FIRST_SCALE) << _DROPPED).to(tl.float32, bitcast=True)


@triton.jit
def _cells(halves, scale_codes, LEVELS: tl.constexpr):
    """The codes, float32, of halves [ROWS, 2, D / 2] with these scales [ROWS, 2]."""
    scales = _scales_of_codes(scale_codes)
    cells = halves * tl.div_rn(tl.full(scales.shape, 1.0, tl.float32), scales)[:, :, None] + LEVELS / 2
    return tl.floor(tl.minimum(tl.maximum(cells, 0.0), LEVELS - 1.0))


@triton.jit
def _squares_of_errors(halves, scale_codes, LEVELS: tl.constexpr):
    numbers = (_cells(halves, scale_codes, LEVELS) - (LEVELS - 1) / 2) * _scales_of_codes(scale_codes)[:, :, None]
    errors = numbers - halves
    return tl.sum(errors * errors, 2)


@triton.jit
def _best_scale(halves, LEVELS: tl.constexpr):
    """Scale codes, int32 [ROWS, 2], as `small_integers.quantise_again` chooses them."""
    bits = (tl.max(tl.abs(halves), 2) * (2 / LEVELS)).to(tl.int32, bitcast=True)
    nearest = (bits + _BELOW_HALF + ((bits >> _DROPPED) & 1)) >> _DROPPED
    usual = tl.minimum(tl.maximum(nearest - _FIRST_SCALE, 0), _LAST_SCALE)
    best, least = usual, _squares_of_errors(halves, usual, LEVELS)
    best, least = _better_scale(halves, usual, best, least, _SMALLER, LEVELS)
    best, least = _better_scale(halves, usual, best, least, _GREATER, LEVELS)
    best, least = _better_scale(halves, usual, best, least, _GREATEST, LEVELS)
    return best


@triton.jit
def _better_scale(halves, usual, best, least, STEP: tl.constexpr, LEVELS: tl.constexpr):
    codes = tl.minimum(tl.maximum(usual + STEP, 0), _LAST_SCALE)
    errors = _squares_of_errors(halves, codes, LEVELS)
    if STEP > 0:
        errors = errors * _GREATER_FACTOR
    return tl.where(errors < least, codes, best), tl.minimum(errors, least)


@triton.jit
def _packed(bits, ROWS: tl.constexpr, N: tl.constexpr):
    """bits [ROWS, N], 0 or 1 -> bytes [ROWS, N / 8], the first of eight in the lowest bit."""
    eights = tl.reshape(bits, (ROWS, N // 8, 8)) << tl.arange(0, 8)[None, None, :]
    return tl.sum(eights, 2).to(tl.uint8)


@triton.jit
def _compress(
    PAGES, PLACES, page, place, row, HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    IS_KEY: tl.constexpr,
):  # fmt: skip
    """Vectors `row` [ROWS] of the keys or values that begin at `page` in PAGES and at `place` in PLACES."""
    LEVELS: tl.constexpr = _KEY_LEVELS if IS_KEY else _VALUE_LEVELS
    NUMBERS: tl.constexpr = D // 2 if IS_KEY else D // 4  # bytes of a vector
    PLANES: tl.constexpr = (_KEY_PLANES if IS_KEY else _VALUE_PLANES) * D // 16
    x = tl.load(PAGES + page + row[:, None] * D + tl.arange(0, D)[None, :]).to(tl.float32)
    if PAGES.dtype.element_ty.primitive_bitwidth == 8:
        scales = tl.load(scale_places(PAGES, page, row // HEADS, row % HEADS, HEADS * D, PAGE))
        x = x * scales.to(tl.float32)[:, None]
    halves = tl.reshape(_transformed(x, ROWS, D), (ROWS, 2, D // 2))
    scale_codes = _best_scale(halves, LEVELS)
    codes = _cells(halves, scale_codes, LEVELS).to(tl.int32)
    first, second = tl.split(tl.permute(codes, (0, 2, 1)))
    numbers = PLACES + place + row[:, None] * NUMBERS
    planes = PLACES + place + PAGE * HEADS * NUMBERS + row[:, None] * PLANES
    if IS_KEY:
        tl.store(numbers + tl.arange(0, D // 2)[None, :], ((first & 15) | ((second & 15) << 4)).to(tl.uint8))
        tl.store(planes + tl.arange(0, D // 8)[None, :], _packed(tl.reshape(codes >> 4, (ROWS, D)), ROWS, D))
    else:
        fields = first * LEVELS + second
        low, high = tl.split(tl.permute(tl.reshape(fields & 15, (ROWS, 2, D // 4)), (0, 2, 1)))
        tl.store(numbers + tl.arange(0, D // 4)[None, :], (low | (high << 4)).to(tl.uint8))
        for plane in tl.static_range(_VALUE_PLANES):
            bits = _packed((fields >> (4 + plane)) & 1, ROWS, D // 2)
            tl.store(planes + plane * (D // 16) + tl.arange(0, D // 16)[None, :], bits)
    scales_at = _scale_codes_at(place, row, HEADS, PAGE, NUMBERS + PLANES)
    tl.store(PLACES + scales_at, scale_codes.to(tl.uint8))


@triton.jit
def _scale_codes_at(place, row, HEADS: tl.constexpr, PAGE: tl.constexpr, VECTOR_BYTES: tl.constexpr):
    """Where the scale codes of vectors stand, [ROWS, 2]. VECTOR_BYTES: without them."""
    at = place + PAGE * HEADS * VECTOR_BYTES + row % HEADS * 2 * PAGE + row // HEADS
    return at[:, None] + tl.arange(0, 2)[None, :] * PAGE


@triton.jit
def _expand(
    PAGES, PLACES, page, place, row, HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    IS_KEY: tl.constexpr,
):  # fmt: skip
    """The inverse of `_compress`."""
    LEVELS: tl.constexpr = _KEY_LEVELS if IS_KEY else _VALUE_LEVELS
    NUMBERS: tl.constexpr = D // 2 if IS_KEY else D // 4
    PLANES: tl.constexpr = (_KEY_PLANES if IS_KEY else _VALUE_PLANES) * D // 16
    i = tl.arange(0, D // 2)[None, :]
    numbers = PLACES + place + row[:, None] * NUMBERS
    bits = PLACES + place + PAGE * HEADS * NUMBERS + row[:, None] * PLANES + i // 8  # of numbers, or fields, i
    if IS_KEY:
        number = tl.load(numbers + i).to(tl.int32)
        first = (number & 15) | ((tl.load(bits).to(tl.int32) >> (i % 8) & 1) << 4)
        second = (number >> 4) | ((tl.load(bits + D // 16).to(tl.int32) >> (i % 8) & 1) << 4)
    else:
        field = (tl.load(numbers + i % (D // 4)).to(tl.int32) >> (i // (D // 4) * 4)) & 15
        for plane in tl.static_range(_VALUE_PLANES):
            field |= (tl.load(bits + plane * (D // 16)).to(tl.int32) >> (i % 8) & 1) << (4 + plane)
        first, second = field // LEVELS, field % LEVELS
    codes = tl.permute(tl.join(first, second), (0, 2, 1)).to(tl.float32)
    scale_codes = tl.load(PLACES + _scale_codes_at(place, row, HEADS, PAGE, NUMBERS + PLANES)).to(tl.int32)
    halves = (codes - (LEVELS - 1) / 2) * _scales_of_codes(scale_codes)[:, :, None]
    x = _transformed(tl.reshape(halves, (ROWS, D)), ROWS, D)
    at = PAGES + page + row[:, None] * D + tl.arange(0, D)[None, :]
    if PAGES.dtype.element_ty.primitive_bitwidth == 8:
        columns = tl.trans(x)
        scales, inverses = scale_of(columns, columns, PAGES, IS_KEY)
        tl.store(at, rounded(x * inverses[:, None], PAGES))
        tl.store(scale_places(PAGES, page, row // HEADS, row % HEADS, HEADS * D, PAGE), scales)
    else:
        tl.store(at, x.to(PAGES.dtype.element_ty))


@triton.jit(do_not_specialize_on_alignment=["IDS"])  # see `launch`
def _places_kernel(
    PAGES, PLACES, IDS, LAYERS: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, ENTRIES: tl.constexpr,
    ROWS: tl.constexpr, IS_COMPRESSED: tl.constexpr,
):  # fmt: skip
    """Program (page, tile of a layer, keys or values). ENTRIES: of PAGES that a vector takes; IS_COMPRESSED: from places to
    pages; else from pages to places."""
    VECTORS: tl.constexpr = PAGE * HEADS
    KEY: tl.constexpr = D // 2 + _KEY_PLANES * D // 16 + 2
    VALUE: tl.constexpr = D // 4 + _VALUE_PLANES * D // 16 + 2
    index, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    layer = tile // (VECTORS // ROWS)
    row = tile % (VECTORS // ROWS) * ROWS + tl.arange(0, ROWS)
    page = (tl.load(IDS + index) * LAYERS + layer) * (2 * VECTORS * ENTRIES)
    place = (index * LAYERS + layer) * (VECTORS * (KEY + VALUE))
    if tl.program_id(2) == 0:
        if IS_COMPRESSED:
            _expand(PAGES, PLACES, page, place, row, HEADS, D, PAGE, ROWS, True)
        else:
            _compress(PAGES, PLACES, page, place, row, HEADS, D, PAGE, ROWS, True)
    else:
        page += VECTORS * ENTRIES
        place += VECTORS * KEY
        if IS_COMPRESSED:
            _expand(PAGES, PLACES, page, place, row, HEADS, D, PAGE, ROWS, False)
        else:
            _compress(PAGES, PLACES, page, place, row, HEADS, D, PAGE, ROWS, False)


def compress_pages(storage: torch.Tensor, shape: KvShape, pages: torch.Tensor, places: torch.Tensor) -> None:
    """Queue on the current stream: the pages with these numbers are written to places, compressed.

    storage: of `KvPages` of this shape; pages: [n] int64; places: [at least n, bytes of a place] uint8, contiguous. All on one
    device."""
    _launch(storage, shape, pages, places, is_compressed=False)


def expand_places(places: torch.Tensor, storage: torch.Tensor, shape: KvShape, pages: torch.Tensor) -> None:
    """The inverse of `compress_pages`."""
    _launch(storage, shape, pages, places, is_compressed=True)


def _launch(storage: torch.Tensor, shape: KvShape, pages: torch.Tensor, places: torch.Tensor, *, is_compressed: bool) -> None:
    if not len(pages):
        return
    tiles = shape.n_layers * PAGE_TOKENS * shape.n_kv_heads // _VECTORS
    _places_kernel[(len(pages), tiles, 2)](
        storage, places, pages, LAYERS=shape.n_layers, HEADS=shape.n_kv_heads, D=shape.head_dim, PAGE=PAGE_TOKENS,
        ENTRIES=shape.vector_entries[0], ROWS=_VECTORS, IS_COMPRESSED=is_compressed, num_warps=_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
