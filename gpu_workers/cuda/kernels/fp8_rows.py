"""Rows as 8-bit floating-point numbers (e4m3) with one scale each, for products with 8-bit weights.

The scale of a row is its greatest magnitude / 448, as in `fp8_weights.quantise_rows`, which is the reference. The norm in front
of a product and the rounding after it are one kernel, and so are the gate of a feed-forward and its rounding.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.fp8_weights import FP8, GREATEST, LEAST_MAGNITUDE
from gpu_workers.cuda.kernels.activation import silu_times
from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two
from gpu_workers.cuda.kernels.norm import count_warps


@triton.jit
def _store_row(y, OUT, SCALES, row, column, N, GREATEST: tl.constexpr, LEAST: tl.constexpr):
    """Rounds one row y [BLOCK] float32, zeros after its N numbers."""
    scale = tl.maximum(tl.max(tl.abs(y), 0), LEAST) / GREATEST
    tl.store(SCALES + row, scale)
    tl.store(OUT + row.to(tl.int64) * N + column, (y / scale).to(OUT.dtype.element_ty), mask=column < N)


@triton.jit
def _quantise_kernel(
    X, OUT, SCALES, N, stride_x, GREATEST: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    x = tl.load(X + row.to(tl.int64) * stride_x + column, mask=column < N, other=0.0).to(tl.float32)
    _store_row(x, OUT, SCALES, row, column, N, GREATEST, LEAST)


@triton.jit
def _add_norm_quantise_kernel(
    X, RESIDUAL, W, OUT, SCALES, N, eps,
    GREATEST: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < N
    start = row.to(tl.int64) * N
    weight = tl.load(W + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    x = tl.load(X + start + column, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(RESIDUAL + start + column, mask=inside, other=0.0).to(tl.float32)
    total = (x + residual).to(RESIDUAL.dtype.element_ty)  # rounded before the norm, as if it had been read back
    tl.store(RESIDUAL + start + column, total, mask=inside)
    total = total.to(tl.float32)
    y = total * tl.rsqrt(tl.sum(total * total, 0) / N + eps) * weight
    _store_row(y, OUT, SCALES, row, column, N, GREATEST, LEAST)


@triton.jit
def _silu_mul_quantise_kernel(
    GATE_UP, OUT, SCALES, N, stride_row, GREATEST: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < N
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    at = GATE_UP + row.to(tl.int64) * stride_row + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + N, mask=inside, other=0.0).to(tl.float32)
    y = silu_times(gate, up).to(GATE_UP.dtype.element_ty).to(tl.float32)  # rounded as if it had been stored
    _store_row(y, OUT, SCALES, row, column, N, GREATEST, LEAST)


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [T, n], last axis contiguous -> (numbers [T, n] e4m3, scales [T, 1] float32), both new."""
    n_rows, n = x.shape
    out, scales = _empty(x)
    if n_rows:
        block, pdl = power_of_two(n), dependent_launch(x.device)
        _quantise_kernel[(n_rows,)](
            x, out, scales, n, x.stride(0),
            GREATEST=GREATEST, LEAST=LEAST_MAGNITUDE, BLOCK=block, PDL=pdl, num_warps=count_warps(block), launch_pdl=pdl,
        )  # fmt: skip
    return out, scales


def add_norm_quantise(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """x, residual [T, n] contiguous; then `residual` holds x + residual. Returns its norm, rounded as by `quantise`."""
    n_rows, n = x.shape
    out, scales = _empty(x)
    if n_rows:
        block, pdl = power_of_two(n), dependent_launch(x.device)
        _add_norm_quantise_kernel[(n_rows,)](
            x, residual, weight, out, scales, n, eps,
            GREATEST=GREATEST, LEAST=LEAST_MAGNITUDE, BLOCK=block, PDL=pdl, num_warps=count_warps(block), launch_pdl=pdl,
        )  # fmt: skip
    return out, scales


def silu_mul_quantise(gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_up [T, 2 n], last axis contiguous -> silu(first half) * second half, rounded as by `quantise`."""
    n_rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    out, scales = _empty(gate_up[:, :n])
    if n_rows:
        block, pdl = power_of_two(n), dependent_launch(gate_up.device)
        _silu_mul_quantise_kernel[(n_rows,)](
            gate_up, out, scales, n, gate_up.stride(0),
            GREATEST=GREATEST, LEAST=LEAST_MAGNITUDE, BLOCK=block, PDL=pdl, num_warps=count_warps(block), launch_pdl=pdl,
        )  # fmt: skip
    return out, scales


def _empty(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(x.shape, dtype=FP8, device=x.device), torch.empty((len(x), 1), dtype=torch.float32, device=x.device)
