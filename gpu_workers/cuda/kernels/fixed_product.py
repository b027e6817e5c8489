"""Products with a weight in which the bits of a row do not depend on the other rows, at the speed of a tiled product.

The order of additions is fixed by the shape of the weight alone: K is cut into segments; inside of a segment the tensor cores
add sixteen products after the other, and the sums of segments are added in their order, in float32. A tile may have any size,
because its rows and columns do not meet, and the segments of a tile may be computed by one program or by several: the last one
of these adds them. So few rows use as many programs as many rows do, and no bit changes.

All tiles of 16-bit numbers have at least 64 rows, so that every size uses the same instruction of the tensor cores (wgmma of 64
rows); rows that are not there cost no memory traffic. Batch-invariant products: Horace He and Thinking Machines Lab, "Defeating
Nondeterminism in LLM Inference" (2025), which gives up the parallel sum over K; the fixed segments keep it.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import dependent_launch

_GROUP = 8  # tiles of rows that share the weight's blocks in the cache
_ARRIVALS = 1 << 16
_FEWEST_TILES = 132  # multiprocessors of an H200
_SEGMENTED_OUTPUTS, _SEGMENTED_INPUTS = 8192, 2048  # weights with at most so many rows and at least so many columns


@dataclass(frozen=True)
class ProductShape:
    """How one product is cut: rows and outputs of a tile, inputs at a time, warps and stages of a program; whether each
    segment of a tile has a program of its own."""

    rows: int
    outs: int
    k_block: int
    warps: int
    stages: int
    is_split: bool


@triton.jit
def _segment(
    X, W, row, column, n_rows, n_out, K, stride_x, stride_w, first, end,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The product of inputs first .. end - 1, [BM, BN] float32."""
    k = tl.arange(0, BK)
    x_at = X + row.to(tl.int64)[:, None] * stride_x + k[None, :]
    w_at = W + column.to(tl.int64)[:, None] * stride_w + k[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    for k0 in range(first, end, BK):
        inside = k0 + k < K
        x = tl.load(x_at + k0, mask=(row < n_rows)[:, None] & inside[None, :], other=0.0)
        w = tl.load(w_at + k0, mask=(column < n_out)[:, None] & inside[None, :], other=0.0)
        total = tl.dot(x, tl.trans(w), total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["n_rows"])
def _product_kernel(
    X, W, BIAS, Y, PARTIAL, ARRIVED, n_rows, n_out, K, segment_inputs, stride_x, stride_w,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SEGMENTS: tl.constexpr, SPLIT: tl.constexpr,
    GROUP: tl.constexpr, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    tile = tl.program_id(0)
    row_tiles, column_tiles = tl.cdiv(n_rows, BM), tl.cdiv(n_out, BN)
    group = tile // (GROUP * column_tiles)
    in_group = tl.minimum(row_tiles - group * GROUP, GROUP)
    within = tile - group * GROUP * column_tiles
    row = (group * GROUP + within % in_group) * BM + tl.arange(0, BM)
    column = (within // in_group) * BN + tl.arange(0, BN)
    at = row.to(tl.int64)[:, None] * n_out + column[None, :]
    is_there = (row < n_rows)[:, None] & (column < n_out)[None, :]
    total = tl.zeros([BM, BN], tl.float32)
    is_whole = True
    if SPLIT:
        segment = tl.program_id(1)
        first = segment * segment_inputs
        end = tl.minimum(first + segment_inputs, K)
        part = _segment(X, W, row, column, n_rows, n_out, K, stride_x, stride_w, first, end, BM, BN, BK, PRECISION)
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
            total += _segment(X, W, row, column, n_rows, n_out, K, stride_x, stride_w, first, end, BM, BN, BK, PRECISION)
    if is_whole:
        if HAS_BIAS:
            total += tl.load(BIAS + column, mask=column < n_out, other=0.0).to(tl.float32)[None, :]
        tl.store(Y + at, total.to(Y.dtype.element_ty), mask=is_there)


@functools.cache
def _arrivals(device: torch.device) -> torch.Tensor:
    """[_ARRIVALS] int32: programs of a tile that have ended, zero between launches; launches do not overlap."""
    return torch.zeros(_ARRIVALS, dtype=torch.int32, device=device)


def count_segments(n_out: int, width: int) -> int:
    """The number of segments for a weight [n_out, width]: by this shape alone, never by the number of rows."""
    return 2 if n_out <= _SEGMENTED_OUTPUTS and width >= _SEGMENTED_INPUTS else 1


def product_shape(n_rows: int, n_out: int, width: int, dtype: torch.dtype) -> ProductShape:
    """The cut for n_rows rows and a weight [n_out, width]: enough programs to fill the device, and few reads of the weight."""
    if dtype == torch.float32:
        return ProductShape(32, 32, 32, 4, 2, is_split=False)
    segments = count_segments(n_out, width)
    if n_rows <= 64:
        outs = 64 if n_out * segments >= 6144 else 32 if n_out >= 2048 else 16
        return ProductShape(64, outs, 64, 4, 6, is_split=segments > 1)
    if n_rows <= 128:
        return ProductShape(128, 64 if n_out >= 2048 else 32, 64, 8, 4, is_split=segments > 1)
    tiles = triton.cdiv(n_rows, 128) * triton.cdiv(n_out, 128)
    if segments == 1 and tiles >= 8 * _FEWEST_TILES:
        return ProductShape(128, 256, 64, 8, 3, is_split=False)
    outs = 128 if tiles * segments >= _FEWEST_TILES * 3 // 4 else 64
    return ProductShape(128, outs, 64, 8, 3, is_split=segments > 1 and tiles < 2 * _FEWEST_TILES)


def fixed_product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, shape: ProductShape | None = None
) -> torch.Tensor:
    """x [T, K] @ weight [N, K].T + bias [N] -> a new [T, N] of x's dtype; sums in float32. All of one dtype, last axes
    contiguous. shape: `product_shape` by default. The bits of a row are the same in every shape; the first call on a device may
    not be captured."""
    n_rows, width = x.shape
    n_out = weight.shape[0]
    out = torch.empty((n_rows, n_out), dtype=x.dtype, device=x.device)
    if n_rows == 0:
        return out
    shape = shape or product_shape(n_rows, n_out, width, x.dtype)
    segments = 1 if x.dtype == torch.float32 else count_segments(n_out, width)
    tiles = triton.cdiv(n_rows, shape.rows) * triton.cdiv(n_out, shape.outs)
    is_split = shape.is_split and segments > 1 and tiles <= _ARRIVALS
    partial = torch.empty((segments, n_rows, n_out), dtype=torch.float32, device=x.device) if is_split else out
    pdl = dependent_launch(x.device)
    _product_kernel[(tiles, segments if is_split else 1)](
        x, weight, weight if bias is None else bias, out, partial, _arrivals(x.device), n_rows, n_out, width,
        _segment_inputs(width, segments), x.stride(0), weight.stride(0),
        BM=shape.rows, BN=shape.outs, BK=shape.k_block, SEGMENTS=segments,
        SPLIT=is_split, GROUP=_GROUP, HAS_BIAS=bias is not None,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=shape.warps, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    return out


def _segment_inputs(width: int, segments: int) -> int:
    """Inputs of one segment: whole blocks of any cut."""
    return triton.cdiv(triton.cdiv(width, segments), 128) * 128
