"""Addition, norm and product of one row in one launch, because a batch of one is bound by the number of kernels in a row.

    t = x + residual;  y = (t * norm_weight) @ weight.T / rms(t)       or, gated:  silu(y of the gate rows) * y of the up rows

The root mean square is a factor of the whole sum, so it is found beside it, in one walk along the row; every program walks
the whole row (it comes from the cache), and each keeps its block of t as the new residual.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.activation import silu_times
from gpu_workers.cuda.kernels.gemv import GemvShape
from gpu_workers.cuda.kernels.launch import LATE_WIDTH, dependent_launch


@triton.jit
def _load_block(at, k, K, EVEN: tl.constexpr):
    if EVEN:
        return tl.load(at, eviction_policy="evict_first")
    return tl.load(at, mask=(k < K)[None, :], other=0.0, eviction_policy="evict_first")


@triton.jit
def _norm_gemv_kernel(
    W, X, RESIDUAL, NORM, BIAS, SCALES, Y, NEW_RESIDUAL, K, eps, stride_w, n_gate,
    ROWS: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr, HAS_X: tl.constexpr, HAS_BIAS: tl.constexpr,
    SCALED: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, BK)
    at = W + n.to(tl.int64)[:, None] * stride_w + k[None, :]
    up_at = at + n_gate.to(tl.int64) * stride_w
    w = _load_block(at, k, K, EVEN)
    up = w
    if GATED:
        up = _load_block(up_at, k, K, EVEN)
    scale = tl.load(NORM + k, mask=k < K, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()  # late, see `launch`
    squares = tl.zeros([BK], tl.float32)
    total = tl.zeros([ROWS, BK], tl.float32)
    up_total = tl.zeros([ROWS, BK], tl.float32)
    for k0 in range(0, K, BK):
        following, up_following, scale_following = w, up, scale
        if k0 + BK < K:  # the next weights are on their way while these are used
            following = _load_block(at + k0 + BK, k0 + BK + k, K, EVEN)
            if GATED:
                up_following = _load_block(up_at + k0 + BK, k0 + BK + k, K, EVEN)
            scale_following = tl.load(NORM + k0 + BK + k, mask=k0 + BK + k < K, other=0.0)
        inside = k0 + k < K
        t = tl.load(RESIDUAL + k0 + k, mask=inside, other=0.0)
        if HAS_X:
            x = tl.load(X + k0 + k, mask=inside, other=0.0).to(tl.float32)
            t = (t.to(tl.float32) + x).to(RESIDUAL.dtype.element_ty)  # rounded before the norm, as if it had been read back
            if k0 == tl.program_id(0) * BK:
                tl.store(NEW_RESIDUAL + k0 + k, t, mask=inside)
        t = t.to(tl.float32)
        squares += t * t
        t = t * scale.to(tl.float32)
        total += w.to(tl.float32) * t[None, :]
        if GATED:
            up_total += up.to(tl.float32) * t[None, :]
        w, up, scale = following, up_following, scale_following
    factor = tl.rsqrt(tl.sum(squares, 0) / K + eps)
    y = tl.sum(total, 1) * factor
    if SCALED:
        y *= tl.load(SCALES + n)
    if HAS_BIAS:
        y += tl.load(BIAS + n).to(tl.float32)
    if GATED:
        up_y = tl.sum(up_total, 1) * factor
        if SCALED:
            up_y *= tl.load(SCALES + n_gate + n)
        y = silu_times(y, up_y)
    tl.store(Y + n, y.to(Y.dtype.element_ty))


def norm_gemv(
    x: torch.Tensor | None,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    shape: GemvShape,
    scales: torch.Tensor | None = None,
    *,
    is_gated: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x, residual [1, K] -> (y [1, N], x + residual [1, K]), both new; without x the residual is returned as it is.

    weight [N, K], or gated [2 N, K]: gate rows, then up rows; all of one dtype, last axes contiguous; sums in float32. scales
    [rows of the weight] float32: of a weight of 8-bit numbers; None: 1. N must be a multiple of the rows of a program, and
    N / rows programs must be enough to keep the residual. Raises ValueError."""
    width = residual.shape[1]
    rows = max(1, shape.rows // 2) if is_gated else shape.rows
    n_out = weight.shape[0] // 2 if is_gated else weight.shape[0]
    if n_out % rows or n_out // rows < triton.cdiv(width, shape.k_block):
        raise ValueError(f"weight: expected a multiple of {rows} rows for {width} columns, got {tuple(weight.shape)}")
    out = torch.empty((1, n_out), dtype=residual.dtype, device=residual.device)
    kept = residual if x is None else torch.empty_like(residual)
    pdl = dependent_launch(residual.device)
    _norm_gemv_kernel[(n_out // rows,)](
        weight, residual if x is None else x, residual, norm_weight, weight if bias is None else bias,
        weight if scales is None else scales, out, kept,
        width, eps, weight.stride(0), n_out,
        ROWS=rows, BK=shape.k_block, EVEN=width % shape.k_block == 0, HAS_X=x is not None, HAS_BIAS=bias is not None,
        SCALED=scales is not None, GATED=is_gated, PDL=pdl, num_warps=shape.warps, launch_pdl=pdl,
    )  # fmt: skip
    return out, kept


_MEASURED = {  # (out, in, is gated): the fastest cut on an H200, `kernels_check.py norm_gemv`
    (960, 576, False): GemvShape(4, 1024, 2),
    (3072, 576, True): GemvShape(8, 512, 2),
    (4096, 1024, False): GemvShape(8, 512, 2),
    (6144, 1024, True): GemvShape(4, 512, 1),
}


def norm_gemv_shape(n_out: int, width: int, is_gated: bool) -> GemvShape | None:
    """The cut for a weight [n_out, width], or None where norm and product are faster apart: each program reads its whole row,
    which wide rows do not repay."""
    if width > LATE_WIDTH or n_out % 16 or n_out < 2 * width // 16:
        return None
    return _MEASURED.get((n_out, width, is_gated), GemvShape(8, 512, 2))
