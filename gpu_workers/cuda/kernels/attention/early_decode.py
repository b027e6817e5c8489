"""Attention of a batch of one token, which reads the keys of earlier steps while the projection of its query still runs.

It computes what `paged_decode` computes with new keys, for one row. The kernel in front of it must be a late one, see `launch`:
then lengths, page table and pages were written by kernels that have ended when this one starts, and it reads them before it
waits. After the wait only the query, one key and one value are missing.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.attention.decode_parts import DecodeShape, join_parts
from gpu_workers.cuda.kernels.attention.paged_decode import LOG2_E, NewKeys, rotated
from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two
from gpu_workers.cuda.kernels.pages.scaled_pages import VALUE_UNIT, load_scales, scale_places, store_vector, widen
from gpu_workers.cuda.kernels.pages.small_pages import load_small, store_small, transformed_back, transformed_queries
from messages.steps import PAGE_TOKENS


@triton.jit
def _load_keys(
    K, V, TABLE, kv_offset, n0, end, stride_page, stride_slot, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
    SMALL: tl.constexpr,
):  # fmt: skip
    """Keys and values n0 .. min(n0 + BN, end) - 1, [BN, D] each; zeros after them, or SMALL: anything finite."""
    key = n0 + tl.arange(0, BN)
    d = tl.arange(0, D)
    seen = key < end
    page = tl.load(TABLE + key // PAGE, mask=seen, other=0).to(tl.int64)
    if SMALL:
        k = load_small(K, page * stride_page, key % PAGE, seen, kv_offset // D, stride_slot // D, D, PAGE, True)
        v = load_small(V, page * stride_page, key % PAGE, seen, kv_offset // D, stride_slot // D, D, PAGE, False)
    else:
        place = page * stride_page + (key % PAGE) * stride_slot + kv_offset
        k = tl.load(K + place[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        v = tl.load(V + place[:, None] + d[None, :], mask=seen[:, None], other=0.0)
    return k, v


@triton.jit
def _mix(
    q, k, v, maximum, total, mixed, n0, end, scale_log2, k_scales, v_scales,
    BN: tl.constexpr, PRECISION: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Keys n0 .. min(n0 + BN, end) - 1, which may be none, into the running softmax. SCALED: with scales of `load_scales`."""
    if SCALED:
        k, v = widen(k), widen(v)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
    if SCALED:
        scores *= k_scales.to(tl.float32)[None, :]
    scores = tl.where((n0 + tl.arange(0, BN) < end)[None, :], scores, float("-inf"))
    new_maximum = tl.maximum(tl.maximum(maximum, tl.max(scores, 1)), -1e30)  # of no keys it would be -inf
    weights = tl.exp2(scores - new_maximum[:, None])
    shrink = tl.exp2(maximum - new_maximum)
    total = total * shrink + tl.sum(weights, 1)
    if SCALED:
        weights *= (v_scales.to(tl.float32) * VALUE_UNIT)[None, :]
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(q.dtype), v, input_precision=PRECISION)
    return new_maximum, total, mixed


@triton.jit(do_not_specialize=["n_splits"])
def _early_decode_kernel(
    Q, NEW_K, NEW_V, COS_SIN, K, V, TABLE, LENGTHS, PARTIAL, LSE, scale_log2, stride_page, stride_slot, n_splits,
    GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    SMALL: tl.constexpr = K.dtype.element_ty == tl.uint8
    SCALED: tl.constexpr = K.dtype.element_ty.primitive_bitwidth == 8 and not SMALL
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    kv_head, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(LENGTHS)
    last = tl.maximum(length - 1, 0)  # its key is not in the pages yet
    per_split = tl.cdiv(tl.cdiv(last, n_splits), BN) * BN
    start = split * per_split
    end = tl.minimum(start + per_split, last)
    if (split > 0) & (start >= end):
        if PDL:
            tl.extra.cuda.gdc_wait()
        return
    kv_offset = kv_head * D
    d = tl.arange(0, D)
    half = tl.max_contiguous(tl.multiple_of(d % (D // 2), 8), 8)  # unless it is told, the compiler reads number by number
    other = tl.max_contiguous(tl.multiple_of((d + D // 2) % D, 8), 8)
    group = tl.arange(0, GROUP_BLOCK)
    q_at = ((kv_head * GROUP + group) * D)[:, None]
    k, v = _load_keys(K, V, TABLE, kv_offset, start, end, stride_page, stride_slot, D, BN, PAGE, SMALL)
    k_scales, v_scales = 0.0, 0.0
    if SCALED:
        key = start + tl.arange(0, BN)
        k_scales, v_scales = load_scales(K, V, TABLE, key, key < end, kv_head, stride_page, stride_slot, PAGE)
    cos = tl.load(COS_SIN + last * D + half)
    sin = tl.load(COS_SIN + last * D + D // 2 + half) * tl.where(d < D // 2, -1.0, 1.0)
    place = tl.load(TABLE + last // PAGE).to(tl.int64) * stride_page + (last % PAGE) * stride_slot + kv_offset
    if PDL:
        tl.extra.cuda.gdc_wait()
    q = rotated(Q, q_at + d[None, :], q_at + other[None, :], cos[None, :], sin[None, :], (group < GROUP)[:, None])
    new_k = rotated(NEW_K, kv_offset + d, kv_offset + other, cos, sin, d < D)
    new_v = tl.load(NEW_V + kv_offset + d)
    has_new = (split == 0) & (length > 0)
    if SMALL:
        page, n_kv_heads = place - (last % PAGE) * stride_slot - kv_offset, stride_slot // D
        new_k = store_small(new_k, K, page, last % PAGE, kv_head, n_kv_heads, has_new, D, PAGE, True)
        new_v = store_small(new_v, V, page, last % PAGE, kv_head, n_kv_heads, has_new, D, PAGE, False)
        q = transformed_queries(q, D)
    elif SCALED:
        page, token = place - (last % PAGE) * stride_slot - kv_offset, last % PAGE
        k_scale = scale_places(K, page, token, kv_head, stride_slot, PAGE)
        v_scale = scale_places(V, page, token, kv_head, stride_slot, PAGE)
        new_k = store_vector(new_k, K, place + d, k_scale, has_new, True)
        new_v = store_vector(new_v, V, place + d, v_scale, has_new, False) * VALUE_UNIT
    else:
        tl.store(K + place + d, new_k, mask=has_new)
        tl.store(V + place + d, new_v, mask=has_new)
    new_score = tl.sum(q.to(tl.float32) * new_k.to(tl.float32)[None, :], 1) * scale_log2
    new_score = tl.where(has_new, new_score, float("-inf"))
    maximum = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([GROUP_BLOCK, D], tl.float32)
    if SCALED:
        q = q.to(tl.float16)
    maximum, total, mixed = _mix(
        q, k, v, maximum, total, mixed, start, end, scale_log2, k_scales, v_scales, BN, PRECISION, SCALED
    )  # fmt: skip
    for n0 in range(start + BN, end, BN):
        k, v = _load_keys(K, V, TABLE, kv_offset, n0, end, stride_page, stride_slot, D, BN, PAGE, SMALL)
        if SCALED:
            key = n0 + tl.arange(0, BN)
            k_scales, v_scales = load_scales(K, V, TABLE, key, key < end, kv_head, stride_page, stride_slot, PAGE)
        maximum, total, mixed = _mix(
            q, k, v, maximum, total, mixed, n0, end, scale_log2, k_scales, v_scales, BN, PRECISION, SCALED
        )  # fmt: skip
    new_maximum = tl.maximum(maximum, new_score)
    new_weight, shrink = tl.exp2(new_score - new_maximum), tl.exp2(maximum - new_maximum)
    total = total * shrink + new_weight
    mixed = mixed * shrink[:, None] + new_weight[:, None] * new_v.to(tl.float32)[None, :]
    if SCALED:
        mixed *= 1 / VALUE_UNIT
    mixed = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    if SMALL:
        mixed = transformed_back(mixed, D, False)
    lse = tl.where(total > 0.0, new_maximum + tl.log2(total), float("-inf"))
    part = (kv_head * GROUP + group) * n_splits + split
    tl.store(LSE + part, lse, mask=group < GROUP)
    tl.store(PARTIAL + part[:, None] * D + d[None, :], mixed, mask=(group < GROUP)[:, None])


def early_decode(
    q: torch.Tensor,
    new: NewKeys,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: DecodeShape,
) -> None:
    """Arguments as `paged_decode` takes them with `new`, for one row and at least two splits; `shape.least` must be 0."""
    n_heads, head_dim = q.shape[1:]
    n_kv_heads, splits = k_pages.shape[2], shape.splits
    group, pdl = n_heads // n_kv_heads, dependent_launch(q.device)
    partial = torch.empty((1, n_heads, splits, head_dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((1, n_heads, splits), dtype=torch.float32, device=q.device)
    _early_decode_kernel[(n_kv_heads, splits)](
        q, new.k, new.v, new.cos_sin, k_pages, v_pages, page_table, lengths, partial, lse,
        scale * LOG2_E, k_pages.stride(0), n_kv_heads * head_dim, splits,
        GROUP=group, GROUP_BLOCK=power_of_two(group, 16), D=head_dim, BN=shape.keys, PAGE=PAGE_TOKENS,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    join_parts(partial, lse, lengths, out, shape, is_new=True, is_early=True)
