"""Products with a weight, as fast as a tiled product. The bits of a row's result do not depend on the other rows.

The shape of the weight alone fixes the order of additions: K is cut into segments. Inside a segment the tensor cores add
groups of sixteen products one after the other; the sums of the segments are then added in order, in float32. The size of a
tile changes no bit, because no addition crosses its rows or columns. One program or several may compute the segments of a
tile; the last of them to finish adds the sums. So a few rows can use as many programs as many rows do.

Tiles of 64 rows and more use one instruction of Hopper's tensor cores (wgmma), smaller ones another (mma.sync). On an H200 both
give the same bits: 1,133 of 1,133 cuts in `ops.gpu.fixed_product_sweep`, which compares them again wherever it runs. Missing
rows of a tile cost no memory traffic. `fixed_shapes` chooses the tiles. The gate of a feed-forward layer can be computed in the
same kernel, from sums that are rounded as if they had been stored. The idea of batch-invariant products is from Horace He and
Thinking Machines Lab, "Defeating Nondeterminism in LLM Inference" (2025). They give up the parallel sum over K; fixed segments
keep it.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.activation import silu_times
from gpu_workers.cuda.kernels.fixed_shapes import ProductShape, product_shape
from gpu_workers.cuda.kernels.launch import ARRIVALS, arrivals, dependent_launch
from gpu_workers.cuda.kernels.prefetch import prefetch_rows

_GROUP = 8  # tiles of rows that share the weight's blocks in the cache
_SEGMENT_STEP = 128  # inputs; segments are whole blocks of any cut


@triton.jit
def _segment(
    X, W, row, weight_row, n_rows, stride_x, stride_w, first, end,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The product of inputs first .. end - 1, [BM, BN] float32."""
    k = tl.arange(0, BK)
    x_at = X + row.to(tl.int64)[:, None] * stride_x + k[None, :]
    w_at = W + weight_row.to(tl.int64)[:, None] * stride_w + k[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    for k0 in range(first, end, BK):
        inside = k0 + k < end
        x = tl.load(x_at + k0, mask=(row < n_rows)[:, None] & inside[None, :], other=0.0)
        w = tl.load(w_at + k0, mask=inside[None, :], other=0.0)
        total = tl.dot(x, tl.trans(w), total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["n_rows"])
def _product_kernel(
    X, W, BIAS, Y, PARTIAL, ARRIVED, n_rows, n_out, K, segment_inputs, stride_x, stride_w,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SEGMENTS: tl.constexpr, SPLIT: tl.constexpr,
    GROUP: tl.constexpr, HAS_BIAS: tl.constexpr, GATED: tl.constexpr, PREFETCH: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """GATED: the first half of the weight's rows are gates, the second half what they gate; a tile holds a gate and what it
    gates in columns side by side."""
    tile = tl.program_id(0)
    row_tiles, column_tiles = tl.cdiv(n_rows, BM), tl.cdiv(n_out, BN)
    group = tile // (GROUP * column_tiles)
    in_group = tl.minimum(row_tiles - group * GROUP, GROUP)
    within = tile - group * GROUP * column_tiles
    row = (group * GROUP + within % in_group) * BM + tl.arange(0, BM)
    first_column = (within // in_group) * BN
    column = first_column + tl.arange(0, BN)
    weight_row = tl.minimum(column, n_out - 1)
    if GATED:
        weight_row = weight_row // 2 + weight_row % 2 * (n_out // 2)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        if PREFETCH > 0:
            prefetch_rows(W, weight_row, tl.program_id(1) * segment_inputs, K, stride_w, PREFETCH)
        tl.extra.cuda.gdc_wait()
    at = row.to(tl.int64)[:, None] * n_out + column[None, :]
    is_there = (row < n_rows)[:, None] & (column < n_out)[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    is_whole = True
    if SPLIT:
        segment = tl.program_id(1)
        first = segment * segment_inputs
        end = tl.minimum(first + segment_inputs, K)
        part = _segment(X, W, row, weight_row, n_rows, stride_x, stride_w, first, end, BM, BN, BK, PRECISION)
        size = n_rows.to(tl.int64) * n_out
        tl.store(PARTIAL + segment * size + at, part, mask=is_there)
        tl.debug_barrier()  # all of this program's stores come before its arrival
        is_whole = tl.atomic_add(ARRIVED + tile, 1, sem="acq_rel") == SEGMENTS - 1
        if is_whole:
            tl.store(ARRIVED + tile, 0)
            for index in tl.static_range(SEGMENTS):
                total += tl.load(PARTIAL + index * size + at, mask=is_there, other=0.0, cache_modifier=".cg")
    else:
        for index in tl.static_range(SEGMENTS):
            first = index * segment_inputs
            end = tl.minimum(first + segment_inputs, K)
            total += _segment(X, W, row, weight_row, n_rows, stride_x, stride_w, first, end, BM, BN, BK, PRECISION)
    if is_whole:
        if HAS_BIAS:
            total += tl.load(BIAS + column, mask=column < n_out, other=0.0).to(tl.float32)[None, :]
        if GATED:
            rounded = total.to(Y.dtype.element_ty).to(tl.float32)  # as if it had been stored
            gate, up = tl.split(tl.reshape(rounded, [BM, BN // 2, 2]))
            place = first_column // 2 + tl.arange(0, BN // 2)
            stored = (row < n_rows)[:, None] & (place < n_out // 2)[None, :]
            y_at = Y + row.to(tl.int64)[:, None] * (n_out // 2) + place[None, :]
            tl.store(y_at, silu_times(gate, up).to(Y.dtype.element_ty), mask=stored)
        else:
            tl.store(Y + at, total.to(Y.dtype.element_ty), mask=is_there)


def fixed_product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    shape: ProductShape | None = None,
    *,
    is_gated: bool = False,
) -> torch.Tensor:
    """x [T, K] @ weight [N, K].T + bias [N] -> a new [T, N] of x's dtype; sums in float32. All of one dtype, last axes
    contiguous. is_gated: N is even and [T, N / 2] is returned, silu(first half) * second half. shape: `product_shape` by
    default. The bits of a row are the same in every shape of as many segments. The first call on a device may not be
    captured."""
    n_rows, width = x.shape
    n_out = weight.shape[0]
    out = torch.empty((n_rows, n_out // 2 if is_gated else n_out), dtype=x.dtype, device=x.device)
    if n_rows == 0:
        return out
    shape = shape or product_shape(n_rows, n_out, width, x.dtype)
    tiles = triton.cdiv(n_rows, shape.rows) * triton.cdiv(n_out, shape.outs)
    if tiles > ARRIVALS or shape.segments == 1:
        shape = replace(shape, is_split=False)
    partial = torch.empty((shape.segments, n_rows, n_out), dtype=torch.float32, device=x.device) if shape.is_split else out
    pdl = dependent_launch(x.device)
    _product_kernel[(tiles, shape.segments if shape.is_split else 1)](
        x, weight, weight if bias is None else bias, out, partial, arrivals(x.device), n_rows, n_out, width,
        _segment_inputs(width, shape.segments), x.stride(0), weight.stride(0),
        BM=shape.rows, BN=shape.outs, BK=shape.k_block, SEGMENTS=shape.segments, SPLIT=shape.is_split, GROUP=_GROUP,
        HAS_BIAS=bias is not None, GATED=is_gated, PREFETCH=shape.prefetch,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    return out


def _segment_inputs(width: int, segments: int) -> int:
    """Inputs of one segment: whole blocks of any cut."""
    return triton.cdiv(triton.cdiv(width, segments), _SEGMENT_STEP) * _SEGMENT_STEP
