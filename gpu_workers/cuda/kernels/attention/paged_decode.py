"""Attention of single tokens over pages. The keys of a row are split between programs; a second kernel, or the last of these
programs, joins their results.

A program holds one kv head of one row with all query heads that read it, so no key is read twice. The number of splits is
fixed at launch; lengths are read on the device, so a captured launch serves any lengths. Splitting keys between programs
follows Flash-Decoding (Dao et al., 2023), the running softmax FlashAttention (Dao et al., 2022).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.attention.decode_parts import PARTS, DecodeShape, arrive, join_parts, last_joins
from gpu_workers.cuda.kernels.launch import arrivals, dependent_launch, power_of_two
from gpu_workers.cuda.kernels.pages.scaled_pages import VALUE_UNIT, load_scales, scale_places, store_vector, widen, widen_pairs
from gpu_workers.cuda.kernels.pages.small_pages import load_small, store_small, transformed_back, transformed_queries
from messages.steps import PAGE_TOKENS

LOG2_E = math.log2(math.e)


@triton.jit
def rotated(X, at, other, cos, sin, mask):
    """Entries `at` of vectors turned by their position; `other`: the same entries of the other halves of their heads."""
    x = tl.load(X + at, mask=mask, other=0.0)
    y = tl.load(X + other, mask=mask, other=0.0)
    return (x.to(tl.float32) * cos + y.to(tl.float32) * sin).to(X.dtype.element_ty)


@triton.jit
def _store_new(NEW_K, NEW_V, K, V, k_start, v_start, place, cos, sin, D: tl.constexpr):
    """The key of a row's last position rotated, and its value, both [D]: written to `place` in the pages and returned."""
    d = tl.arange(0, D)
    k = rotated(NEW_K, k_start + d, k_start + (d + D // 2) % D, cos, sin, d < D)
    v = tl.load(NEW_V + v_start + d)
    tl.store(K + place + d, k)
    tl.store(V + place + d, v)
    return k.to(tl.float32), v.to(tl.float32)


@triton.jit
def _store_scaled(
    NEW_K, NEW_V, K, V, k_start, v_start, place, page, token, kv_head, cos, sin, stride_slot,
    D: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """As `_store_new`, for pages of 8-bit numbers; returns what these stand for. page: offset of the page; token: within it."""
    d = tl.arange(0, D)
    k = rotated(NEW_K, k_start + d, k_start + (d + D // 2) % D, cos, sin, d < D)
    k = store_vector(k, K, place + d, scale_places(K, page, token, kv_head, stride_slot, PAGE), True, True)
    v = tl.load(NEW_V + v_start + d)
    return k, store_vector(v, V, place + d, scale_places(V, page, token, kv_head, stride_slot, PAGE), True, False)


@triton.jit
def _mix_keys(
    q, K, V, table, kv_offset, maximum, total, mixed, n0, end, scale_log2, stride_page, stride_slot,
    D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Keys n0 .. min(n0 + BN, end) - 1 into the running softmax of a row."""
    key = n0 + tl.arange(0, BN)
    d = tl.arange(0, D)
    seen = key < end
    page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64)
    place = page * stride_page + (key % PAGE) * stride_slot + kv_offset
    k = tl.load(K + place[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
    scores = tl.where(seen[None, :], scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    weights = tl.exp2(scores - new_maximum[:, None])
    shrink = tl.exp2(maximum - new_maximum)
    total = total * shrink + tl.sum(weights, 1)
    v = tl.load(V + place[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(q.dtype)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(q.dtype), v, input_precision=PRECISION)
    return new_maximum, total, mixed


@triton.jit
def _mix_scaled_keys(
    q, K, V, table, kv_offset, maximum, total, even, odd, n0, end, scale_log2, stride_page, stride_slot, k_scales, v_scales,
    D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """As `_mix_keys`, for pages of 8-bit numbers with the scales of `load_scales`. even, odd: the sums of the entries of even
    and odd number; values are read as pairs of entries, because matrices of 16-bit words are turned in shared memory by one
    instruction, and those of bytes byte by byte."""
    key = n0 + tl.arange(0, BN)
    d, pair = tl.arange(0, D), tl.arange(0, D // 2)
    seen = key < end
    page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64)
    place = page * stride_page + (key % PAGE) * stride_slot + kv_offset
    k = widen(tl.load(K + place[:, None] + d[None, :], mask=seen[:, None], other=0.0))
    scores = tl.dot(q, tl.trans(k)) * scale_log2 * k_scales.to(tl.float32)[None, :]
    scores = tl.where(seen[None, :], scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    weights = tl.exp2(scores - new_maximum[:, None])
    shrink = tl.exp2(maximum - new_maximum)
    total = total * shrink + tl.sum(weights, 1)
    weights = (weights * (v_scales.to(tl.float32) * VALUE_UNIT)[None, :]).to(tl.float16)
    pairs = tl.load(
        (V + place).to(tl.pointer_type(tl.int16), bitcast=True)[:, None] + pair[None, :], mask=seen[:, None], other=0
    )
    v_even, v_odd = widen_pairs(pairs, V)
    even = even * shrink[:, None] + tl.dot(weights, v_even)
    odd = odd * shrink[:, None] + tl.dot(weights, v_odd)
    return new_maximum, total, even, odd


@triton.jit
def _mix_small_keys(
    q, K, V, table, kv_head, n_kv_heads, maximum, total, mixed, n0, end, scale_log2, stride_page,
    D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """As `_mix_keys`, for pages of small integers: q and mixed are transformed."""
    key = n0 + tl.arange(0, BN)
    seen = key < end
    page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64) * stride_page
    k = load_small(K, page, key % PAGE, seen, kv_head, n_kv_heads, D, PAGE, True)
    scores = tl.where(seen[None, :], tl.dot(q, tl.trans(k)) * scale_log2, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    weights = tl.exp2(scores - new_maximum[:, None])
    shrink = tl.exp2(maximum - new_maximum)
    total = total * shrink + tl.sum(weights, 1)
    v = load_small(V, page, key % PAGE, seen, kv_head, n_kv_heads, D, PAGE, False)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(tl.float16), v)
    return new_maximum, total, mixed


@triton.jit(do_not_specialize=["stride_table", "n_splits", "least"])
def _decode_kernel(
    Q, NEW_K, NEW_V, COS_SIN, K, V, TABLE, LENGTHS, OUT, PARTIAL, LSE, ARRIVED,
    scale_log2, stride_q, stride_new_k, stride_new_v, stride_table, stride_page, stride_slot, n_heads, n_splits, least,
    GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, JOINED_HEADS: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr,
    BN: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr, LAST_JOINS: tl.constexpr, IS_NEW: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    SMALL: tl.constexpr = K.dtype.element_ty == tl.uint8
    SCALED: tl.constexpr = K.dtype.element_ty.primitive_bitwidth == 8 and not SMALL
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    kv_head, split, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = tl.load(LENGTHS + row)
    last = tl.maximum(length - 1, 0)
    n_keys = last if IS_NEW else length  # to be read from pages
    per_split = tl.maximum(tl.cdiv(tl.cdiv(n_keys, n_splits), BN) * BN, least)
    start = split * per_split
    end = tl.minimum(start + per_split, n_keys)
    if (split > 0) & (start >= end):
        return
    table, kv_offset = TABLE + row * stride_table, kv_head * D
    d = tl.arange(0, D)
    group = tl.arange(0, GROUP_BLOCK)
    in_group = (group < GROUP)[:, None]
    q_at = row * stride_q + (kv_head * GROUP + group)[:, None] * D
    maximum = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([GROUP_BLOCK, D], tl.float32)
    if IS_NEW:
        cos = tl.load(COS_SIN + last * D + d % (D // 2))
        sin = tl.load(COS_SIN + last * D + D // 2 + d % (D // 2)) * tl.where(d < D // 2, -1.0, 1.0)
        q = rotated(Q, q_at + d[None, :], q_at + ((d + D // 2) % D)[None, :], cos[None, :], sin[None, :], in_group)
        if SMALL:
            q = transformed_queries(q, D)
        if (split == 0) & (length > 0):
            place = tl.load(table + last // PAGE).to(tl.int64) * stride_page + (last % PAGE) * stride_slot + kv_offset
            k_start, v_start = row * stride_new_k + kv_offset, row * stride_new_v + kv_offset
            if SMALL:
                page, n_kv_heads = place - (last % PAGE) * stride_slot - kv_offset, stride_slot // D
                k = rotated(NEW_K, k_start + d, k_start + (d + D // 2) % D, cos, sin, d < D)
                k = store_small(k, K, page, last % PAGE, kv_head, n_kv_heads, True, D, PAGE, True)
                v = store_small(tl.load(NEW_V + v_start + d), V, page, last % PAGE, kv_head, n_kv_heads, True, D, PAGE, False)
            elif SCALED:
                page = place - (last % PAGE) * stride_slot - kv_offset
                k, v = _store_scaled(
                    NEW_K, NEW_V, K, V, k_start, v_start, place, page, last % PAGE, kv_head, cos, sin, stride_slot, D, PAGE
                )
                v *= VALUE_UNIT
            else:
                k, v = _store_new(NEW_K, NEW_V, K, V, k_start, v_start, place, cos, sin, D)
            maximum = tl.sum(q.to(tl.float32) * k[None, :], 1) * scale_log2
            total += 1.0
            mixed += v[None, :]
    else:
        q = tl.load(Q + q_at + d[None, :], mask=in_group, other=0.0)
        if SMALL:
            q = transformed_queries(q, D)
    if SMALL:
        for n0 in range(start, end, BN):
            maximum, total, mixed = _mix_small_keys(
                q, K, V, table, kv_head, stride_slot // D, maximum, total, mixed, n0, end, scale_log2, stride_page, D, BN, PAGE
            )  # fmt: skip
    elif SCALED:
        q, key = q.to(tl.float16), start + tl.arange(0, BN)
        k_scales, v_scales = load_scales(K, V, table, key, key < end, kv_head, stride_page, stride_slot, PAGE)
        even, odd = tl.split(tl.reshape(mixed, (GROUP_BLOCK, D // 2, 2)))
        for n0 in range(start, end, BN):
            key = n0 + BN + tl.arange(0, BN)  # scales are read one block ahead: they are too small for the compiler to do it
            next_k, next_v = load_scales(K, V, table, key, key < end, kv_head, stride_page, stride_slot, PAGE)
            maximum, total, even, odd = _mix_scaled_keys(
                q, K, V, table, kv_offset, maximum, total, even, odd, n0, end, scale_log2, stride_page, stride_slot,
                k_scales, v_scales, D, BN, PAGE,
            )  # fmt: skip
            k_scales, v_scales = next_k, next_v
        mixed = tl.reshape(tl.join(even, odd), (GROUP_BLOCK, D)) * (1 / VALUE_UNIT)
    else:
        for n0 in range(start, end, BN):
            maximum, total, mixed = _mix_keys(
                q, K, V, table, kv_offset, maximum, total, mixed, n0, end, scale_log2, stride_page, stride_slot,
                D, BN, PAGE, PRECISION,
            )  # fmt: skip
    mixed = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    if SMALL:
        mixed = transformed_back(mixed, D, False)
    lse = tl.where(total > 0.0, maximum + tl.log2(total), float("-inf"))
    head_row = row * n_heads + kv_head * GROUP
    if SPLIT and not LAST_JOINS:
        part = (head_row + group) * n_splits + split
        tl.store(LSE + part, lse, mask=group < GROUP)
        tl.store(PARTIAL + part[:, None] * D + d[None, :], mixed, mask=in_group)
    elif not SPLIT or n_keys <= per_split:  # the row is in one piece
        tl.store(OUT + (head_row + group)[:, None] * D + d[None, :], mixed.to(OUT.dtype.element_ty), mask=in_group)
    else:
        arrived, n_parts = ARRIVED + row * tl.num_programs(0) + kv_head, tl.cdiv(n_keys, per_split)
        arrive(
            mixed, lse, PARTIAL, LSE, OUT, arrived, head_row, split, n_splits, n_parts,
            GROUP, GROUP_BLOCK, JOINED_HEADS, PARTS, D,
        )  # fmt: skip


@dataclass(frozen=True)
class NewKeys:
    """What a step adds to the keys of its rows, one token each: k, v [R, n_kv_heads, head_dim] before rotation, heads
    contiguous, and the rotations, see `KvTarget.cos_sin`."""

    k: torch.Tensor
    v: torch.Tensor
    cos_sin: torch.Tensor


def paged_decode(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: DecodeShape,
    new: NewKeys | None = None,
) -> None:
    """q, out [R, n_heads, head_dim], heads contiguous; pages as in `KvPages`, each contiguous, at one stride for both;
    page_table [R, P] int32; lengths [R] int32, rows of length 0 get zeros. head_dim and splits are powers of two. The first
    call on a device may not be captured.
    Without `new` q is rotated and the keys of all positions are in their pages. With it q is not rotated, and the key and
    value of each row's last position are taken from `new` and written to their page; no row may read what another writes."""
    n_rows, n_heads, head_dim = q.shape
    n_kv_heads, splits = k_pages.shape[2], shape.splits
    group, pdl = n_heads // n_kv_heads, dependent_launch(q.device)
    is_last_joining = last_joins(shape, n_rows * n_kv_heads)
    if splits > 1:
        partial = torch.empty((n_rows, n_heads, splits, head_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty((n_rows, n_heads, splits), dtype=torch.float32, device=q.device)
    else:
        partial = lse = out
    k, v, cos_sin = (q, q, q) if new is None else (new.k, new.v, new.cos_sin)
    _decode_kernel[(n_kv_heads, splits, n_rows)](
        q, k, v, cos_sin, k_pages, v_pages, page_table, lengths, out, partial, lse, arrivals(q.device),
        scale * LOG2_E, q.stride(0), k.stride(0), v.stride(0), page_table.stride(0), k_pages.stride(0),
        n_kv_heads * head_dim, n_heads, splits, shape.least,
        GROUP=group, GROUP_BLOCK=power_of_two(group, 16), JOINED_HEADS=power_of_two(group), PARTS=PARTS, D=head_dim,
        BN=shape.keys, PAGE=PAGE_TOKENS, SPLIT=splits > 1, LAST_JOINS=is_last_joining, IS_NEW=new is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    if splits > 1 and not is_last_joining:
        join_parts(partial, lse, lengths, out, shape, is_new=new is not None)
