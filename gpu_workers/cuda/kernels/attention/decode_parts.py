"""How decode attention cuts rows into parts, and the two ways to join them: by the last program of a row, or by a kernel."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import ARRIVALS, dependent_launch

PARTS = 8  # that a joining program reads at once


@dataclass(frozen=True)
class DecodeShape:
    """How decode attention is cut. splits: programs that share a row's keys; keys: those that a program reads at once; warps,
    stages: of a program. least: keys below which a row is not cut further, so that long rows do not keep a batch of short
    ones waiting. With `least` the last program of a row joins its pieces: most rows are in one piece then and need no second
    kernel."""

    splits: int
    keys: int = 64
    warps: int = 4
    stages: int = 3
    least: int = 0


def last_joins(shape: DecodeShape, n_pairs: int) -> bool:
    """True if the last program of a row joins its parts, and no second kernel. n_pairs: of rows and kv heads."""
    return shape.splits > 1 and shape.least > 0 and n_pairs <= ARRIVALS


def kernels_of(shape: DecodeShape, n_pairs: int) -> DecodeShape:
    """Shapes for which this is equal launch the same kernels. A number of splits is no constant of the first kernel, but of the
    second one."""
    has_one = shape.splits == 1 or last_joins(shape, n_pairs)
    return replace(shape, splits=min(shape.splits, 2), least=min(shape.least, 1)) if has_one else shape


@triton.jit
def arrive(
    mixed, lse, PARTIAL, LSE, OUT, arrived, head_row, split, n_splits, n_parts,
    GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, JOINED_HEADS: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Store one part of a row; the last program of the row to arrive joins all of them.

    Parts are read past the cache of this multiprocessor, which may hold those of an older launch. PARTS of all
    heads are read at once, so that their latencies overlap. head_row: number of the first query head of this kv head among all
    heads of all rows."""
    d = tl.arange(0, D)
    group = tl.arange(0, GROUP_BLOCK)
    part = (head_row + group) * n_splits + split
    tl.store(LSE + part, lse, mask=group < GROUP)
    tl.store(PARTIAL + part[:, None] * D + d[None, :], mixed, mask=(group < GROUP)[:, None])
    tl.debug_barrier()  # all of this program's stores come before its arrival
    if tl.atomic_add(arrived, 1, sem="acq_rel") == n_parts - 1:
        tl.store(arrived, 0)
        head = tl.arange(0, JOINED_HEADS)
        maximum = tl.full([JOINED_HEADS], float("-inf"), tl.float32)
        total = tl.zeros([JOINED_HEADS], tl.float32)
        joined = tl.zeros([JOINED_HEADS, D], tl.float32)
        for first in range(0, n_parts, PARTS):
            other = first + tl.arange(0, PARTS)
            at = (head_row + head)[:, None] * n_splits + other[None, :]
            present = (head < GROUP)[:, None] & (other < n_parts)[None, :]
            lses = tl.load(LSE + at, mask=present, other=float("-inf"), cache_modifier=".cg")
            places = PARTIAL + at[:, :, None] * D + d[None, None, :]
            parts = tl.load(places, mask=present[:, :, None], other=0.0, cache_modifier=".cg")
            new_maximum = tl.maximum(tl.maximum(maximum, tl.max(lses, 1)), -1e30)  # heads that are not there have none
            weights, shrink = tl.exp2(lses - new_maximum[:, None]), tl.exp2(maximum - new_maximum)
            total = total * shrink + tl.sum(weights, 1)
            joined = joined * shrink[:, None] + tl.sum(parts * weights[:, :, None], 1)
            maximum = new_maximum
        out = OUT + (head_row + head)[:, None] * D + d[None, :]
        tl.store(out, (joined / total[:, None]).to(OUT.dtype.element_ty), mask=(head < GROUP)[:, None])


@triton.jit
def _join_kernel(
    PARTIAL, LSE, LENGTHS, OUT, n_heads,
    D: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr, IS_NEW: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        if not EARLY:
            tl.extra.cuda.gdc_wait()
    row_head = tl.program_id(0).to(tl.int64)
    n_keys = tl.load(LENGTHS + row_head // n_heads)
    if IS_NEW:
        n_keys -= 1
    per_split = tl.cdiv(tl.cdiv(n_keys, SPLITS), BN) * BN  # as in the kernel before, which wrote no part beyond the keys
    split = tl.arange(0, SPLITS)
    written = (split == 0) | (split * per_split < n_keys)
    d = tl.arange(0, D)
    if PDL and EARLY:
        tl.extra.cuda.gdc_wait()
    lse = tl.load(LSE + row_head * SPLITS + split, mask=written, other=float("-inf"))
    maximum = tl.max(lse, 0)
    weights = tl.exp2(lse - tl.where(maximum > float("-inf"), maximum, 0.0))
    partial = PARTIAL + (row_head * SPLITS + split)[:, None] * D + d[None, :]
    parts = tl.load(partial, mask=written[:, None], other=0.0)
    total = tl.sum(weights, 0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(OUT + row_head * D + d, out.to(OUT.dtype.element_ty))


def join_parts(
    partial: torch.Tensor,
    lse: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor,
    shape: DecodeShape,
    *,
    is_new: bool,
    is_early: bool = False,
) -> None:
    """The second kernel: joins the parts of each row, which the one before wrote for the same lengths and shape.

    partial [R, n_heads, splits, head_dim], lse [R, n_heads, splits], float32; lengths [R] int32; out [R, n_heads, head_dim].
    is_new: the last key of a row was none of those that are split. is_early: the lengths may be read before the wait."""
    n_rows, n_heads, splits, head_dim = partial.shape
    pdl = dependent_launch(out.device)
    _join_kernel[(n_rows * n_heads,)](
        partial, lse, lengths, out, n_heads, D=head_dim, BN=shape.keys, SPLITS=splits, IS_NEW=is_new, EARLY=is_early, PDL=pdl,
        num_warps=4 if splits > 4 else 1, launch_pdl=pdl,
    )  # fmt: skip
