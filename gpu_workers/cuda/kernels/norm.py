"""Root-mean-square norms: alone, and with the addition to the residual stream in front."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import EARLY_HEAD_DIM, dependent_launch, power_of_two

_ELEMENTS = 1024  # of one program, where rows are short enough to share it


@triton.jit(do_not_specialize=["n_rows"])
def _rms_norm_kernel(
    X, W, Y, n_rows, n_heads, stride_token, stride_head, N, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LATE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < n_rows)[:, None] & (column < N)[None, :]
    weight = tl.load(W + column, mask=column < N, other=0.0).to(tl.float32)
    if PDL:
        if not LATE:  # see `launch`
            tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
        if LATE:
            tl.extra.cuda.gdc_launch_dependents()
    start = (row // n_heads).to(tl.int64) * stride_token + (row % n_heads) * stride_head
    x = tl.load(X + start[:, None] + column[None, :], mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / N + eps)
    y = x * scale[:, None] * weight[None, :]
    tl.store(Y + row.to(tl.int64)[:, None] * N + column[None, :], y.to(Y.dtype.element_ty), mask=inside)


@triton.jit
def _add_rms_norm_kernel(X, RESIDUAL, W, N, eps, BLOCK: tl.constexpr, PDL: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < N
    start = tl.program_id(0).to(tl.int64) * N
    weight = tl.load(W + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    x = tl.load(X + start + column, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(RESIDUAL + start + column, mask=inside, other=0.0).to(tl.float32)
    total = (x + residual).to(X.dtype.element_ty)  # rounded before the norm, as if it had been read back
    tl.store(RESIDUAL + start + column, total, mask=inside)
    total = total.to(tl.float32)
    y = total * tl.rsqrt(tl.sum(total * total, 0) / N + eps) * weight
    tl.store(X + start + column, y.to(X.dtype.element_ty), mask=inside)


def count_warps(block: int) -> int:
    """Warps of a program that holds so many numbers of a row."""
    return min(16, max(1, block // 512))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [n_tokens, n] or [n_tokens, n_heads, n], last axis contiguous, other strides free; weight [n]. Returns a new contiguous
    tensor of x's shape and dtype."""
    n = x.shape[-1]
    n_heads = x.shape[1] if x.dim() == 3 else 1
    n_rows = x.shape[0] * n_heads
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if n_rows == 0:
        return out
    block = power_of_two(n)
    rows = max(1, _ELEMENTS // block)  # whatever n_rows is, so that a row is always added up in the same order
    pdl = dependent_launch(x.device)
    _rms_norm_kernel[(triton.cdiv(n_rows, rows),)](
        x, weight, out, n_rows, n_heads, x.stride(0), x.stride(1) if x.dim() == 3 else 0, n, eps,
        ROWS=rows, BLOCK=block, LATE=n <= EARLY_HEAD_DIM, PDL=pdl, num_warps=count_warps(rows * block), launch_pdl=pdl,
    )  # fmt: skip
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """x, residual [n_tokens, n] contiguous; then `residual` holds x + residual, `x` its norm. Returns (x, residual)."""
    n_tokens, n = x.shape
    if n_tokens:
        block = power_of_two(n)
        pdl = dependent_launch(x.device)
        _add_rms_norm_kernel[(n_tokens,)](
            x, residual, weight, n, eps, BLOCK=block, PDL=pdl, num_warps=count_warps(block), launch_pdl=pdl
        )
    return x, residual
