"""Products of 2 to 128 rows with a weight matrix: bound by one read of the weights, a limit that cuBLAS does not reach.

A program computes all rows of a few output columns. Weights and inputs come to shared memory by the copy engine of Hopper
devices, several blocks ahead, so nearly all instructions are those of the tensor cores. With fewer than 64 rows these compute
weight @ x.T, because one of their two sides has at least 64. The gate of a feed-forward layer is computed in the same kernel.
`few_rows_shapes` chooses the cuts. How many rows there are changes the order of additions, and so the bits of a result;
`fixed_product` is for those who mind.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_workers.cuda.kernels.activation import silu_times
from gpu_workers.cuda.kernels.few_rows_shapes import FewRowsShape
from gpu_workers.cuda.kernels.launch import dependent_launch
from gpu_workers.cuda.kernels.prefetch import prefetch_rows

_ALIGNED_BYTES = 16  # that the copy engine wants of addresses and strides


@triton.jit
def _multiply(w, x, total, SWAPPED: tl.constexpr):
    """Adds w [BN, BK] @ x [BM, BK].T, or its transpose, to total [BN, BM] or [BM, BN]."""
    return tl.dot(w, x.T, total) if SWAPPED else tl.dot(x, w.T, total)


@triton.jit(do_not_specialize=["n_rows"])
def _few_rows_kernel(
    X, W, WEIGHT, BIAS, ROW_SCALES, SCALES, Y, n_rows, n_out, K, stride_w,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr, SWAPPED: tl.constexpr,
    HAS_BIAS: tl.constexpr, SCALED: tl.constexpr, GATED: tl.constexpr, PREFETCH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """X, W: descriptors of blocks [BM, BK] and [BN, BK]. WEIGHT: the tensor of W. n_out: columns of Y. GATED: W has n_out
    gates, then what they gate."""
    first = tl.program_id(0) * BN
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        if PREFETCH > 0:
            weight_row = tl.minimum(first + tl.arange(0, BN), n_out - 1)
            prefetch_rows(WEIGHT, weight_row, 0, K, stride_w, PREFETCH)
            if GATED:
                prefetch_rows(WEIGHT, n_out + weight_row, 0, K, stride_w, PREFETCH)
        tl.extra.cuda.gdc_wait()
    total = tl.zeros([BN, BM] if SWAPPED else [BM, BN], tl.float32)
    gated = tl.zeros([BN, BM] if SWAPPED else [BM, BN], tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        x = X.load([0, k])
        total = _multiply(W.load([first, k]), x, total, SWAPPED)
        if GATED:
            gated = _multiply(W.load([n_out + first, k]), x, gated, SWAPPED)
    row, column = tl.arange(0, BM)[:, None], first + tl.arange(0, BN)[None, :]
    if SWAPPED:
        row, column = tl.arange(0, BM)[None, :], first + tl.arange(0, BN)[:, None]
    is_there = (row < n_rows) & (column < n_out)
    if SCALED:
        row_scale = tl.load(ROW_SCALES + row, mask=row < n_rows, other=0.0)
        total *= row_scale * tl.load(SCALES + column, mask=column < n_out, other=0.0)
        if GATED:
            gated *= row_scale * tl.load(SCALES + n_out + column, mask=column < n_out, other=0.0)
    if HAS_BIAS:
        total += tl.load(BIAS + column, mask=column < n_out, other=0.0).to(tl.float32)
    if GATED:
        dtype = Y.dtype.element_ty  # rounded as if they had been stored
        total = silu_times(total.to(dtype).to(tl.float32), gated.to(dtype).to(tl.float32))
    tl.store(Y + row.to(tl.int64) * n_out + column, total.to(Y.dtype.element_ty), mask=is_there)


def takes_few_rows(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """True if the copy engine can read both, [rows, K] each: 8-bit or 16-bit numbers, rows contiguous and aligned, a Hopper
    device."""
    return (
        x.dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
        and dependent_launch(x.device)
        and all(
            tensor.stride(-1) == 1
            and tensor.stride(0) * tensor.element_size() % _ALIGNED_BYTES == 0
            and tensor.data_ptr() % _ALIGNED_BYTES == 0
            for tensor in (x, weight)
        )
    )


@dataclass(frozen=True)
class ProductScales:
    """Of a product of 8-bit numbers; float32."""

    rows: torch.Tensor  # [T, 1], of x
    outs: torch.Tensor  # [N], of the weight
    dtype: torch.dtype  # of the result


def few_rows_product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    shape: FewRowsShape,
    scales: ProductScales | None = None,
    *,
    is_gated: bool = False,
) -> torch.Tensor:
    """x [T, K] @ weight [N, K].T + bias [N] -> a new [T, N] of x's dtype; sums in float32. T is at most shape.rows, and both
    pass `takes_few_rows`. scales: of 8-bit numbers; None: those of 16 bits have none. is_gated: there is no bias, N is even,
    and [T, N / 2] is returned: silu(first half) * second half."""
    n_rows, width = x.shape
    n_out = weight.shape[0] // 2 if is_gated else weight.shape[0]
    out = torch.empty((n_rows, n_out), dtype=x.dtype if scales is None else scales.dtype, device=x.device)
    pdl = dependent_launch(x.device)
    _few_rows_kernel[(triton.cdiv(n_out, shape.outs),)](
        TensorDescriptor.from_tensor(x, [shape.rows, shape.k_block]),
        TensorDescriptor.from_tensor(weight, [shape.outs, shape.k_block]),
        weight, weight if bias is None else bias, weight if scales is None else scales.rows,
        weight if scales is None else scales.outs, out, n_rows, n_out, width, weight.stride(0),
        BM=shape.rows, BN=shape.outs, BK=shape.k_block, STAGES=shape.stages, SWAPPED=shape.is_swapped,
        HAS_BIAS=bias is not None, SCALED=scales is not None, GATED=is_gated, PREFETCH=shape.prefetch, PDL=pdl,
        num_warps=4, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    return out
