"""Attention of single tokens over pages: the keys of a row are split between programs, whose results are joined, by a second
kernel or by the last of them.

A program holds one kv head of one row with all query heads that read it, so no key is read twice. The number of splits is
fixed at launch; lengths are read on the device, so a captured launch serves any lengths. Splitting keys between programs
follows Flash-Decoding (Dao et al., 2023), the running softmax FlashAttention (Dao et al., 2022).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two
from messages.steps import PAGE_TOKENS

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class DecodeShape:
    """How decode attention is cut: programs that share a row's keys, keys at a time, warps and stages of a program, and keys
    below which a row is not cut further, so that long rows do not keep a batch of short ones waiting. With `least` the last
    program of a row joins it, so that rows in one piece, which are most of them then, cost no second kernel."""

    splits: int
    keys: int = 64
    warps: int = 4
    stages: int = 3
    least: int = 0


@triton.jit
def _arrive(
    mixed, lse, PARTIAL, LSE, arrived, out, part, split, n_parts, in_group, GROUP_BLOCK: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Leave one part of a row; the last program to come joins all of them. They are read past the cache of this
    multiprocessor, which may hold those of an older launch."""
    d = tl.arange(0, D)
    tl.store(LSE + part, lse, mask=in_group)
    tl.store(PARTIAL + part[:, None] * D + d[None, :], mixed, mask=in_group[:, None])
    tl.debug_barrier()  # all of this program's stores come before its arrival
    if tl.atomic_add(arrived, 1, sem="acq_rel") == n_parts - 1:
        tl.store(arrived, 0)
        first = part - split
        maximum = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([GROUP_BLOCK], tl.float32)
        joined = tl.zeros([GROUP_BLOCK, D], tl.float32)
        for other in range(0, n_parts):
            weight = tl.load(LSE + first + other, mask=in_group, other=0.0, cache_modifier=".cg")
            at = PARTIAL + (first + other)[:, None] * D + d[None, :]
            partial = tl.load(at, mask=in_group[:, None], other=0.0, cache_modifier=".cg")
            new_maximum = tl.maximum(maximum, weight)
            weight, shrink = tl.exp2(weight - new_maximum), tl.exp2(maximum - new_maximum)
            total = total * shrink + weight
            joined = joined * shrink[:, None] + partial * weight[:, None]
            maximum = new_maximum
        tl.store(out, (joined / total[:, None]).to(out.dtype.element_ty), mask=in_group[:, None])


@triton.jit(do_not_specialize=["stride_table", "n_splits", "least"])
def _decode_kernel(
    Q, K, V, TABLE, LENGTHS, OUT, PARTIAL, LSE, ARRIVED,
    scale_log2, stride_q, stride_table, stride_page, stride_slot, n_heads, n_splits, least,
    GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
    SPLIT: tl.constexpr, LAST_JOINS: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    kv_head = tl.program_id(0)
    split = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    length = tl.load(LENGTHS + row)
    per_split = tl.maximum(tl.cdiv(tl.cdiv(length, n_splits), BN) * BN, least)
    start = split * per_split
    end = tl.minimum(start + per_split, length)
    group = tl.arange(0, GROUP_BLOCK)
    d = tl.arange(0, D)
    in_group = group < GROUP
    head = kv_head * GROUP + group
    q = tl.load(Q + row * stride_q + head[:, None] * D + d[None, :], mask=in_group[:, None], other=0.0)
    maximum = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([GROUP_BLOCK, D], tl.float32)
    for n0 in range(start, end, BN):
        key = n0 + tl.arange(0, BN)
        seen = key < end
        page = tl.load(TABLE + row * stride_table + key // PAGE, mask=seen, other=0).to(tl.int64)
        place = page * stride_page + (key % PAGE) * stride_slot + kv_head * D
        k = tl.load(K + place[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(q.dtype)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp2(scores - new_maximum[:, None])
        shrink = tl.exp2(maximum - new_maximum)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(V + place[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(q.dtype)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(q.dtype), v, input_precision=PRECISION)
        maximum = new_maximum
    safe_total = tl.where(total > 0.0, total, 1.0)
    mixed = mixed / safe_total[:, None]
    out = OUT + row * (n_heads * D) + head[:, None] * D + d[None, :]
    part = (row * n_heads + head) * n_splits + split
    lse = tl.where(total > 0.0, maximum + tl.log2(safe_total), float("-inf"))
    if not SPLIT:
        tl.store(out, mixed.to(OUT.dtype.element_ty), mask=in_group[:, None])
    elif not LAST_JOINS:
        tl.store(LSE + part, lse, mask=in_group)
        if start < end:
            tl.store(PARTIAL + part[:, None] * D + d[None, :], mixed, mask=in_group[:, None])
    elif length <= per_split:  # the row is in one piece
        if split == 0:
            tl.store(out, mixed.to(OUT.dtype.element_ty), mask=in_group[:, None])
    elif start < end:
        arrived = ARRIVED + row * tl.num_programs(0) + kv_head
        _arrive(mixed, lse, PARTIAL, LSE, arrived, out, part, split, tl.cdiv(length, per_split), in_group, GROUP_BLOCK, D)


@triton.jit
def _join_kernel(PARTIAL, LSE, OUT, D: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row_head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    lse = tl.load(LSE + row_head * SPLITS + split)
    present = lse > float("-inf")
    maximum = tl.max(lse, 0)
    weights = tl.where(present, tl.exp2(lse - tl.where(maximum > float("-inf"), maximum, 0.0)), 0.0)
    partial = PARTIAL + (row_head * SPLITS + split)[:, None] * D + d[None, :]
    parts = tl.load(partial, mask=present[:, None], other=0.0)  # of empty splits nothing was written
    total = tl.sum(weights, 0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(OUT + row_head * D + d, out.to(OUT.dtype.element_ty))


_ARRIVALS = 1 << 16


@functools.cache
def _arrivals(device: torch.device) -> torch.Tensor:
    """[_ARRIVALS] int32: programs of a row and kv head that have ended, zero between launches; launches do not overlap."""
    return torch.zeros(_ARRIVALS, dtype=torch.int32, device=device)


def paged_decode(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: DecodeShape,
) -> None:
    """q, out [R, n_heads, head_dim], heads contiguous; pages [n_pages, PAGE_TOKENS, n_kv_heads, head_dim], each
    page contiguous, pages at one stride for both; page_table [R, P] int32; lengths [R] int32, rows of length 0 get zeros.
    head_dim and splits are powers of two. The first call on a device may not be captured."""
    n_rows, n_heads, head_dim = q.shape
    n_kv_heads = k_pages.shape[2]
    group = n_heads // n_kv_heads
    pdl = dependent_launch(q.device)
    splits = shape.splits
    last_joins = splits > 1 and shape.least > 0 and n_rows * n_kv_heads <= _ARRIVALS
    if splits > 1:
        partial = torch.empty((n_rows, n_heads, splits, head_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty((n_rows, n_heads, splits), dtype=torch.float32, device=q.device)
    else:
        partial = lse = out
    _decode_kernel[(n_kv_heads, splits, n_rows)](
        q, k_pages, v_pages, page_table, lengths, out, partial, lse, _arrivals(q.device),
        scale * LOG2_E, q.stride(0), page_table.stride(0), k_pages.stride(0), n_kv_heads * head_dim, n_heads,
        splits, shape.least,
        GROUP=group, GROUP_BLOCK=power_of_two(group, 16), D=head_dim, BN=shape.keys, PAGE=PAGE_TOKENS, SPLIT=splits > 1,
        LAST_JOINS=last_joins, PRECISION="ieee" if q.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    if splits > 1 and not last_joins:
        _join_kernel[(n_rows * n_heads,)](
            partial, lse, out, D=head_dim, SPLITS=splits, PDL=pdl, num_warps=4 if splits > 4 else 1, launch_pdl=pdl
        )
