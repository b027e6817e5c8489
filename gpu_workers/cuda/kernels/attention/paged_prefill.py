"""Causal attention of chunks over pages: rows of any number of tokens that begin at any position.

A tile holds consecutive tokens of a row times all query heads of one kv head, so that short chunks fill it too and no key is
read once per head. FlashAttention's running softmax (Dao et al., 2022); the packing of grouped heads follows FlashAttention 3.

Keys stand in pages of the model's dtype, of 8-bit numbers or of small integers, or have been widened from the latter two for
the whole row (WIDENED, see `widened_keys`). Each launch leaves out the tiles whose keys are read in another way.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.attention.paged_decode import LOG2_E
from gpu_workers.cuda.kernels.attention.tiles import TILE_FIELDS, TileShape
from gpu_workers.cuda.kernels.launch import dependent_launch
from gpu_workers.cuda.kernels.pages.scaled_pages import VALUE_UNIT, load_scales
from gpu_workers.cuda.kernels.pages.small_pages import load_small, transformed_back, transformed_queries
from messages.steps import PAGE_TOKENS


@triton.jit
def read_tile(tile):
    """The fields of a tile of `list_tiles`: row of the page table and flat index of the first token, int64; tokens left in the
    row, position of the first token, keys of the row, int32."""
    row = tl.load(tile).to(tl.int64)
    first_token = tl.load(tile + 1).to(tl.int64)
    n_tokens = tl.load(tile + 2).to(tl.int32)
    first_position = tl.load(tile + 3).to(tl.int32)
    length = tl.load(tile + 4).to(tl.int32)
    return row, first_token, n_tokens, first_position, length


@triton.jit
def read_widening(tile):
    """The other fields: where the keys of the row begin among the widened ones (-1: they are not there), int64, and the tiles
    of the row, int32."""
    return tl.load(tile + 5).to(tl.int64), tl.load(tile + 6).to(tl.int32)


@triton.jit
def place_pairs(pair, kv_head, first_position, n_tokens, GROUP: tl.constexpr, TOKENS: tl.constexpr):
    """(token of the tile, head, is it there, position) of each pair of a tile."""
    token = pair // GROUP
    head = kv_head * GROUP + pair % GROUP
    valid = (token < TOKENS) & (token < n_tokens)
    position = first_position + tl.minimum(token, n_tokens - 1)
    return token, head, valid, position


@triton.jit
def _load_keys(PAGES, place, seen, D: tl.constexpr, IS_MASKED: tl.constexpr):
    """Keys or values at the offsets `place`. IS_MASKED: zeros where not `seen`."""
    at = PAGES + place[:, None] + tl.arange(0, D)[None, :]
    if IS_MASKED:
        return tl.load(at, mask=seen[:, None], other=0.0)
    else:
        return tl.load(at)


@triton.jit
def mix_keys(
    q, K, V, table, kv_offset, maximum, total, mixed, position, n0, length, scale_log2, stride_page, stride_slot,
    k_scales, v_scales, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr, SCALED: tl.constexpr, SMALL: tl.constexpr, WIDENED: tl.constexpr,
):  # fmt: skip
    """One block of keys into the running softmax of a tile. SCALED: with the scales of `load_scales`. SMALL: q and mixed are
    transformed. WIDENED: keys follow one another from kv_offset on, and zeros follow the last."""
    key = n0 + tl.arange(0, BN)
    seen = key < length
    if WIDENED:
        place = kv_offset + key * stride_slot
    elif SMALL:
        place = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64) * stride_page
    elif MASKED:
        place = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64) * stride_page
        place += (key % PAGE) * stride_slot + kv_offset
    else:
        place = tl.load(table + key // PAGE).to(tl.int64) * stride_page + (key % PAGE) * stride_slot + kv_offset
    if SMALL:
        k = load_small(K, place, key % PAGE, seen, kv_offset // D, stride_slot // D, D, PAGE, True)
    else:
        k = _load_keys(K, place, seen, D, MASKED and not WIDENED).to(q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
    if SCALED:
        scores *= k_scales.to(tl.float32)[None, :]
    if MASKED:
        scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    weights = tl.exp2(scores - new_maximum[:, None])
    shrink = tl.exp2(maximum - new_maximum)
    total = total * shrink + tl.sum(weights, 1)
    if SCALED:
        weights *= (v_scales.to(tl.float32) * VALUE_UNIT)[None, :]
    if SMALL:
        v = load_small(V, place, key % PAGE, seen, kv_offset // D, stride_slot // D, D, PAGE, False)
    else:
        v = _load_keys(V, place, seen, D, MASKED and not WIDENED).to(q.dtype)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(q.dtype), v, input_precision=PRECISION)
    return new_maximum, total, mixed


@triton.jit(do_not_specialize=["stride_table"])
def _prefill_kernel(
    Q, K, V, TABLE, TILES, OUT, scale_log2, stride_q, stride_table, stride_page, stride_slot, n_heads,
    GROUP: tl.constexpr, TOKENS: tl.constexpr, BM: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
    FIELDS: tl.constexpr, PRECISION: tl.constexpr, WIDENED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """WIDENED: K and V are the widened ones, stride_page lies between kv heads, stride_slot between tokens."""
    SMALL: tl.constexpr = K.dtype.element_ty == tl.uint8
    SCALED: tl.constexpr = K.dtype.element_ty.primitive_bitwidth == 8 and not SMALL
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    tile = TILES + tl.program_id(0) * FIELDS
    kv_head = tl.program_id(1)
    row, first_token, n_tokens, first_position, length = read_tile(tile)
    table = TABLE + row * stride_table
    kv_offset = kv_head * D
    widened_place, _ = read_widening(tile)
    if (widened_place >= 0) != WIDENED:
        return
    if WIDENED:
        kv_offset = kv_head * stride_page.to(tl.int64) + widened_place * stride_slot

    pair = tl.arange(0, BM)
    token, head, valid, position = place_pairs(pair, kv_head, first_position, n_tokens, GROUP, TOKENS)
    d = tl.arange(0, D)
    place = (first_token + token) * stride_q + head * D
    q = tl.load(Q + place[:, None] + d[None, :], mask=valid[:, None], other=0.0)
    maximum = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    mixed = tl.zeros([BM, D], tl.float32)
    plain_end = (first_position + 1) // BN * BN  # keys before it are seen by every token of the tile
    end = tl.minimum(first_position + TOKENS, length)
    k_scales, v_scales = 0.0, 0.0
    if WIDENED:
        q = q.to(K.dtype.element_ty)
    if SMALL:
        q = transformed_queries(q, D)
    if SCALED:
        q = q.to(tl.float16)
        key = tl.arange(0, BN)
        k_scales, v_scales = load_scales(K, V, table, key, key < length, kv_head, stride_page, stride_slot, PAGE)
    for n0 in range(0, plain_end, BN):
        next_k, next_v = k_scales, v_scales
        if SCALED:
            key = n0 + BN + tl.arange(0, BN)  # scales are read one block ahead: they are too small for the compiler to do it
            next_k, next_v = load_scales(K, V, table, key, key < length, kv_head, stride_page, stride_slot, PAGE)
        maximum, total, mixed = mix_keys(
            q, K, V, table, kv_offset, maximum, total, mixed, position, n0, length, scale_log2, stride_page, stride_slot,
            k_scales, v_scales, D, BN, PAGE, False, PRECISION, SCALED, SMALL, WIDENED,
        )  # fmt: skip
        k_scales, v_scales = next_k, next_v
    for n0 in range(plain_end, end, BN):
        next_k, next_v = k_scales, v_scales
        if SCALED:
            key = n0 + BN + tl.arange(0, BN)
            next_k, next_v = load_scales(K, V, table, key, key < length, kv_head, stride_page, stride_slot, PAGE)
        maximum, total, mixed = mix_keys(
            q, K, V, table, kv_offset, maximum, total, mixed, position, n0, length, scale_log2, stride_page, stride_slot,
            k_scales, v_scales, D, BN, PAGE, True, PRECISION, SCALED, SMALL, WIDENED,
        )  # fmt: skip
        k_scales, v_scales = next_k, next_v
    if SCALED:
        mixed *= 1 / VALUE_UNIT
    mixed = mixed / total[:, None]
    if SMALL:
        mixed = transformed_back(mixed, D, False)
    out = (first_token + token) * (n_heads * D) + head * D
    tl.store(OUT + out[:, None] + d[None, :], mixed.to(OUT.dtype.element_ty), mask=valid[:, None])


def paged_prefill(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    tiles: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: TileShape,
) -> None:
    """q, out [T, n_heads, head_dim], heads contiguous; tiles from `list_tiles`, on the device; the rest as in paged_decode.
    Writes the tokens that tiles name and no others; where keys may be widened, only those whose keys are not."""
    strides = (page_table.stride(0), k_pages.stride(0), k_pages.shape[2] * q.shape[2])
    _launch(q, (k_pages, v_pages, page_table), strides, k_pages.shape[2], tiles, out, scale, shape, is_widened=False)


def widened_prefill(
    q: torch.Tensor, widened: torch.Tensor, tiles: torch.Tensor, out: torch.Tensor, scale: float, shape: TileShape
) -> None:
    """As `paged_prefill`, for the tokens whose keys are widened. widened: after `widen_keys` with the same tiles."""
    keys, values = widened
    strides = (0, keys.stride(0), keys.stride(1))
    _launch(q, (keys, values, tiles), strides, len(keys), tiles, out, scale, shape, is_widened=True)


def _launch(
    q: torch.Tensor,
    sources: tuple[torch.Tensor, torch.Tensor, torch.Tensor],  # keys, values, page table
    strides: tuple[int, int, int],  # of the page table, of pages and of slots; see the kernel
    n_kv_heads: int,
    tiles: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: TileShape,
    *,
    is_widened: bool,
) -> None:
    n_heads, head_dim = q.shape[1:]
    group, pdl = n_heads // n_kv_heads, dependent_launch(q.device)
    _prefill_kernel[(tiles.shape[0], n_kv_heads)](
        q, *sources, tiles, out, scale * LOG2_E, q.stride(0), *strides, n_heads,
        GROUP=group, TOKENS=shape.tokens(group), BM=shape.pairs, D=head_dim, BN=shape.keys, PAGE=PAGE_TOKENS,
        FIELDS=TILE_FIELDS, PRECISION="ieee" if q.dtype == torch.float32 else "tf32", WIDENED=is_widened, PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
