"""Products of one to four rows with a weight matrix: bound by one read of the weights, a limit that cuBLAS does not reach.

A program holds a few output rows and walks along K; the first block of weights is read before the kernel waits for the one
before it, since weights never change. Shapes of programs were measured on an H200 (ops/gpu/kernels_check.py sweeps them).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import LATE_WIDTH, dependent_launch

MAX_ROWS = 4


@dataclass(frozen=True)
class GemvShape:
    """How one product is cut: output rows of a program, elements of K at a time, warps."""

    rows: int
    k_block: int
    warps: int


@triton.jit
def _gemv_kernel(
    W, X, BIAS, Y, K, stride_w, stride_x, stride_y,
    M: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr, HAS_BIAS: tl.constexpr, LATE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, BK)
    w_at = W + n.to(tl.int64)[:, None] * stride_w + k[None, :]
    if EVEN:
        w = tl.load(w_at, eviction_policy="evict_first")
    else:
        w = tl.load(w_at, mask=(k < K)[None, :], other=0.0, eviction_policy="evict_first")
    if PDL:
        if not LATE:  # see `launch`
            tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
        if LATE:
            tl.extra.cuda.gdc_launch_dependents()
    sum0 = tl.zeros([ROWS, BK], tl.float32)
    sum1 = tl.zeros([ROWS, BK], tl.float32)
    sum2 = tl.zeros([ROWS, BK], tl.float32)
    sum3 = tl.zeros([ROWS, BK], tl.float32)
    for k0 in range(0, K, BK):
        following = w
        if k0 + BK < K:  # the next weights are on their way while these are used
            if EVEN:
                following = tl.load(w_at + k0 + BK, eviction_policy="evict_first")
            else:
                following = tl.load(w_at + k0 + BK, mask=(k0 + BK + k < K)[None, :], other=0.0, eviction_policy="evict_first")
        inside = k0 + k < K
        wide = w.to(tl.float32)
        sum0 += wide * tl.load(X + k0 + k, mask=inside, other=0.0).to(tl.float32)[None, :]
        if M > 1:
            sum1 += wide * tl.load(X + stride_x + k0 + k, mask=inside, other=0.0).to(tl.float32)[None, :]
        if M > 2:
            sum2 += wide * tl.load(X + 2 * stride_x + k0 + k, mask=inside, other=0.0).to(tl.float32)[None, :]
        if M > 3:
            sum3 += wide * tl.load(X + 3 * stride_x + k0 + k, mask=inside, other=0.0).to(tl.float32)[None, :]
        w = following
    bias = tl.zeros([ROWS], tl.float32)
    if HAS_BIAS:
        bias += tl.load(BIAS + n).to(tl.float32)
    tl.store(Y + n, (tl.sum(sum0, 1) + bias).to(Y.dtype.element_ty))
    if M > 1:
        tl.store(Y + stride_y + n, (tl.sum(sum1, 1) + bias).to(Y.dtype.element_ty))
    if M > 2:
        tl.store(Y + 2 * stride_y + n, (tl.sum(sum2, 1) + bias).to(Y.dtype.element_ty))
    if M > 3:
        tl.store(Y + 3 * stride_y + n, (tl.sum(sum3, 1) + bias).to(Y.dtype.element_ty))


def gemv(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, shape: GemvShape) -> torch.Tensor:
    """x [1..MAX_ROWS, K] @ weight [N, K].T + bias [N] -> a new [rows, N] of x's dtype; sums in float32.

    Last axes contiguous; N must be a multiple of shape.rows. Raises ValueError otherwise."""
    n_rows, width = x.shape
    n_out = weight.shape[0]
    if not 1 <= n_rows <= MAX_ROWS:
        raise ValueError(f"x: expected 1 to {MAX_ROWS} rows, got {n_rows}")
    if n_out % shape.rows:
        raise ValueError(f"weight: expected a multiple of {shape.rows} rows, got {n_out}")
    out = torch.empty((n_rows, n_out), dtype=x.dtype, device=x.device)
    pdl = dependent_launch(x.device)
    _gemv_kernel[(n_out // shape.rows,)](
        weight, x, weight if bias is None else bias, out, width, weight.stride(0), x.stride(0), n_out,
        M=n_rows, ROWS=shape.rows, BK=shape.k_block, EVEN=width % shape.k_block == 0, HAS_BIAS=bias is not None,
        LATE=width <= LATE_WIDTH, PDL=pdl, num_warps=shape.warps, launch_pdl=pdl,
    )  # fmt: skip
    return out


_MEASURED = {  # (out, in): the fastest cut of one row on an H200, `kernels_check.py gemv`; None: cuBLAS is faster
    (6144, 4096): GemvShape(2, 1024, 2),
    (4096, 4096): GemvShape(4, 512, 4),
    (28_672, 4096): GemvShape(2, 1024, 2),
    (4096, 14_336): GemvShape(2, 2048, 4),
    (128_256, 4096): GemvShape(1, 2048, 2),
    (960, 576): GemvShape(2, 1024, 1),
    (576, 576): GemvShape(2, 1024, 4),
    (3072, 576): GemvShape(8, 1024, 4),
    (576, 1536): GemvShape(2, 2048, 4),
    (49_152, 576): None,
    (4096, 1024): GemvShape(4, 1024, 1),
    (1024, 3072): GemvShape(2, 2048, 8),
    (151_936, 1024): GemvShape(4, 512, 2),
}


def gemv_shape(n_out: int, width: int) -> GemvShape | None:
    """The cut for a weight [n_out, width], or None where cuBLAS is to take it."""
    if (n_out, width) in _MEASURED:
        return _MEASURED[n_out, width]
    if n_out % 4:
        return None
    if width <= 1024:
        return GemvShape(rows=4, k_block=1024 if width > 512 else 512, warps=4)
    return GemvShape(rows=2, k_block=2048 if width % 1024 == 0 and width > 8192 else 1024, warps=2)
