"""Causal attention over pages in which the bits of a token do not depend on its batch: one kernel for chunks and single tokens.

The keys of a token are cut into segments by their number alone (`_segment_size`), never by the load. Inside of a segment the
softmax runs over blocks of keys in order, and segments are merged in order. Programs may share the segments of a single token;
the last one merges. Both ways run the same instructions: what differs are loop bounds, not constants of the compilation. A tile
that holds tokens of two segment sizes is computed once with each.

Multiplications whose result is added are written as `fma`, because the compiler may otherwise fuse them in one place and not in
the other. FlashAttention's running softmax (Dao et al., 2022); fixed splits: Horace He and Thinking Machines Lab, "Defeating
Nondeterminism in LLM Inference" (2025).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.attention.paged_decode import LOG2_E
from gpu_workers.cuda.kernels.attention.paged_prefill import place_pairs, read_tile
from gpu_workers.cuda.kernels.attention.tiles import TILE_FIELDS, TileShape
from gpu_workers.cuda.kernels.launch import ARRIVALS, arrivals, dependent_launch
from gpu_workers.cuda.kernels.pages.scaled_pages import VALUE_UNIT, load_scales
from gpu_workers.cuda.kernels.pages.small_pages import load_small, transformed_back, transformed_queries
from messages.steps import PAGE_TOKENS

SEGMENT_KEYS = 512  # of a token with at most SEGMENT_KEYS * MOST_SEGMENTS keys; then twice as many, and so on
MOST_SEGMENTS = 32
_DOUBLINGS = 10
FIXED_SHAPE = TileShape(pairs=64, keys=64, warps=4, stages=3)  # the one cut of all steps


@triton.jit
def _segment_size(n_keys, SEGMENT: tl.constexpr, MOST: tl.constexpr, DOUBLINGS: tl.constexpr):
    """Keys of a segment of a token with n_keys keys: the least doubling of SEGMENT that needs at most MOST segments."""
    size = n_keys * 0 + SEGMENT
    for _ in tl.static_range(DOUBLINGS):
        size = tl.where(size * MOST < n_keys, size * 2, size)
    return size


@triton.jit
def _mix_keys(
    q, K, V, table, kv_offset, maximum, total, mixed, position, n0, length, scale_log2, stride_page, stride_slot,
    kv_head, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr, SCALED: tl.constexpr,
    SMALL: tl.constexpr,
):  # fmt: skip
    """One block of keys into the running softmax of a segment. `maximum` is that of q.k before it is scaled. SCALED: pages are
    of 8-bit numbers. SMALL: of small integers; q and mixed are transformed."""
    key = n0 + tl.arange(0, BN)
    d = tl.arange(0, D)
    seen = key < length
    page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64)
    place = page * stride_page + (key % PAGE) * stride_slot + kv_offset
    k_scales, v_scales = scale_log2, scale_log2
    if SCALED:
        k_scales, v_scales = load_scales(K, V, table, key, seen, kv_head, stride_page, stride_slot, PAGE)
    if SMALL:
        k = load_small(K, page * stride_page, key % PAGE, seen, kv_head, stride_slot // D, D, PAGE, True)
    else:
        k = tl.load(K + place[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if SCALED:
        scores *= k_scales.to(tl.float32)[None, :]
    scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    finite = tl.where(new_maximum > float("-inf"), new_maximum, 0.0)
    weights = tl.exp2((scores - finite[:, None]) * scale_log2)
    shrink = tl.exp2((maximum - finite) * scale_log2)
    total = tl.fma(total, shrink, tl.sum(weights, 1))
    if SCALED:
        weights *= (v_scales.to(tl.float32) * VALUE_UNIT)[None, :]
    if SMALL:
        v = load_small(V, page * stride_page, key % PAGE, seen, kv_head, stride_slot // D, D, PAGE, False)
    else:
        v = tl.load(V + place[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(q.dtype)
    mixed = tl.dot(weights.to(q.dtype), v, mixed * shrink[:, None], input_precision=PRECISION)
    return new_maximum, total, mixed


@triton.jit
def _merge(maximum, total, mixed, other_maximum, other_total, other_mixed, scale_log2):
    """The softmax over the keys of two parts."""
    new_maximum = tl.maximum(maximum, other_maximum)
    finite = tl.where(new_maximum > float("-inf"), new_maximum, 0.0)
    shrink = tl.exp2((maximum - finite) * scale_log2)
    other_shrink = tl.exp2((other_maximum - finite) * scale_log2)
    total = tl.fma(total, shrink, other_total * other_shrink)
    mixed = tl.fma(mixed, tl.broadcast_to(shrink[:, None], mixed.shape), other_mixed * other_shrink[:, None])
    return new_maximum, total, mixed


@triton.jit(do_not_specialize=["n_splits", "stride_table"])
def _fixed_kernel(
    Q, K, V, TABLE, TILES, OUT, PARTIAL, SUMS, ARRIVED,
    scale_log2, stride_q, stride_table, stride_page, stride_slot, n_heads, n_splits,
    GROUP: tl.constexpr, TOKENS: tl.constexpr, BM: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
    FIELDS: tl.constexpr, SEGMENT: tl.constexpr, MOST: tl.constexpr, DOUBLINGS: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    SMALL: tl.constexpr = K.dtype.element_ty == tl.uint8
    SCALED: tl.constexpr = K.dtype.element_ty.primitive_bitwidth == 8 and not SMALL
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    kv_head, split, n = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    tile = TILES + n * FIELDS
    row, first_token, n_tokens, first_position, length = read_tile(tile)
    table = TABLE + row * stride_table

    end = tl.minimum(first_position + TOKENS, length)  # keys of the last token
    least_size = _segment_size(first_position + 1, SEGMENT, MOST, DOUBLINGS)
    n_passes = tl.where(_segment_size(end, SEGMENT, MOST, DOUBLINGS) > least_size, 2, 1)
    if (split > 0) & (split * least_size >= end):
        return
    pair = tl.arange(0, BM)
    token, head, valid, position = place_pairs(pair, kv_head, first_position, n_tokens, GROUP, TOKENS)
    d = tl.arange(0, D)
    q = tl.load(Q + ((first_token + token) * stride_q + head * D)[:, None] + d[None, :], mask=valid[:, None], other=0.0)
    if SMALL:
        q = transformed_queries(q, D)
    elif SCALED:
        q = q.to(tl.float16)
    for index in range(0, n_passes):
        size = least_size << index
        n_segments = tl.cdiv(end, size)
        first, last = split, tl.minimum(split + 1, n_segments)
        if n_splits == 1:
            last = n_segments
        maximum = tl.full([BM], float("-inf"), tl.float32)
        total = tl.zeros([BM], tl.float32)
        mixed = tl.zeros([BM, D], tl.float32)
        for segment in range(first, last):
            part_maximum = tl.full([BM], float("-inf"), tl.float32)
            part_total = tl.zeros([BM], tl.float32)
            part_mixed = tl.zeros([BM, D], tl.float32)
            for n0 in range(segment * size, tl.minimum((segment + 1) * size, end), BN):
                part_maximum, part_total, part_mixed = _mix_keys(
                    q, K, V, table, kv_head * D, part_maximum, part_total, part_mixed, position, n0, length,
                    scale_log2, stride_page, stride_slot, kv_head, D, BN, PAGE, PRECISION, SCALED, SMALL,
                )  # fmt: skip
            maximum, total, mixed = _merge(maximum, total, mixed, part_maximum, part_total, part_mixed, scale_log2)
        is_whole = (n_splits == 1) | (n_segments <= 1)
        if is_whole == 0:  # one token: its pairs are its heads
            in_group = pair < GROUP
            parts = (n * tl.num_programs(0) + kv_head) * n_splits
            at = (parts + split) * GROUP + pair
            tl.store(SUMS + at * 2, maximum, mask=in_group)
            tl.store(SUMS + at * 2 + 1, total, mask=in_group)
            tl.store(PARTIAL + at[:, None] * D + d[None, :], mixed, mask=in_group[:, None])
            tl.debug_barrier()  # all of this program's stores come before its arrival
            arrived = ARRIVED + n * tl.num_programs(0) + kv_head
            is_whole = tl.atomic_add(arrived, 1, sem="acq_rel") == n_segments - 1
            if is_whole:
                tl.store(arrived, 0)
                maximum = tl.full([BM], float("-inf"), tl.float32)
                total = tl.zeros([BM], tl.float32)
                mixed = tl.zeros([BM, D], tl.float32)
                for segment in range(0, n_segments):
                    at = (parts + segment) * GROUP + pair
                    part_maximum = tl.load(SUMS + at * 2, mask=in_group, other=float("-inf"), cache_modifier=".cg")
                    part_total = tl.load(SUMS + at * 2 + 1, mask=in_group, other=0.0, cache_modifier=".cg")
                    there = PARTIAL + at[:, None] * D + d[None, :]
                    part_mixed = tl.load(there, mask=in_group[:, None], other=0.0, cache_modifier=".cg")
                    maximum, total, mixed = _merge(maximum, total, mixed, part_maximum, part_total, part_mixed, scale_log2)
        if is_whole:
            stored = valid & (_segment_size(position + 1, SEGMENT, MOST, DOUBLINGS) == size)
            out = (first_token + token) * (n_heads * D) + head * D
            result = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
            if SMALL:
                result = transformed_back(result, D, False)
            if SCALED:
                result *= 1 / VALUE_UNIT
            tl.store(OUT + out[:, None] + d[None, :], result.to(OUT.dtype.element_ty), mask=stored[:, None])


def most_segments(n_keys: int) -> int:
    """The number of segments of a token that has at most n_keys keys."""
    return max(1, min(MOST_SEGMENTS, triton.cdiv(n_keys, SEGMENT_KEYS)))


def paged_fixed(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    tiles: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: TileShape,
    n_splits: int = 1,
) -> None:
    """Arguments as in `paged_prefill`. scale: positive. n_splits: programs of a tile and kv head; if more than 1, every tile
    holds one token, and no token has more segments. The first call on a device may not be captured."""
    n_heads, head_dim = q.shape[1:]
    n_kv_heads = k_pages.shape[2]
    group = n_heads // n_kv_heads
    n_tiles = tiles.shape[0]
    if n_tiles * n_kv_heads > ARRIVALS:
        n_splits = 1
    if n_splits > 1:
        sizes = (n_tiles, n_kv_heads, n_splits, group)
        partial = torch.empty((*sizes, head_dim), dtype=torch.float32, device=q.device)
        sums = torch.empty((*sizes, 2), dtype=torch.float32, device=q.device)
    else:
        partial = sums = arrivals(q.device).view(torch.float32)
    pdl = dependent_launch(q.device)
    _fixed_kernel[(n_kv_heads, n_splits, n_tiles)](
        q, k_pages, v_pages, page_table, tiles, out, partial, sums, arrivals(q.device),
        scale * LOG2_E, q.stride(0), page_table.stride(0), k_pages.stride(0), n_kv_heads * head_dim, n_heads, n_splits,
        GROUP=group, TOKENS=shape.tokens(group), BM=shape.pairs, D=head_dim, BN=shape.keys, PAGE=PAGE_TOKENS,
        FIELDS=TILE_FIELDS, SEGMENT=SEGMENT_KEYS, MOST=MOST_SEGMENTS, DOUBLINGS=_DOUBLINGS,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
