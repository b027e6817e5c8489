"""Products of one row with a weight of 8-bit numbers: bound by one read of the weight, as in `gemv`.

Weights are read as words of four numbers. The device turns two numbers into two of 16 bits by one instruction; Triton's own
conversion takes every number apart by itself, which takes longer than the memory does.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.gemv import GemvShape
from gpu_workers.cuda.kernels.launch import LATE_WIDTH, dependent_launch

WORD = 4  # numbers


@triton.jit
def numbers_of_words(words):
    """words int32 of four e4m3 numbers each, the first in the lowest byte -> the four, float32."""
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b16 low, high, half0, half1, half2, half3;
        .reg .b32 first, last;
        mov.b32 {low, high}, $4;
        cvt.rn.f16x2.e4m3x2 first, low;
        cvt.rn.f16x2.e4m3x2 last, high;
        mov.b32 {half0, half1}, first;
        mov.b32 {half2, half3}, last;
        cvt.f32.f16 $0, half0;
        cvt.f32.f16 $1, half1;
        cvt.f32.f16 $2, half2;
        cvt.f32.f16 $3, half3;
        }
        """,
        "=f,=f,=f,=f,r",
        [words],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


@triton.jit
def _load_words(at, k, N_WORDS, EVEN: tl.constexpr):
    if EVEN:
        return tl.load(at, eviction_policy="evict_first")
    return tl.load(at, mask=(k < N_WORDS)[None, :], other=0, eviction_policy="evict_first")


@triton.jit
def _fp8_gemv_kernel(
    W, X, BIAS, SCALES, Y, N_WORDS, stride_w,
    ROWS: tl.constexpr, WORDS: tl.constexpr, EVEN: tl.constexpr, HAS_BIAS: tl.constexpr, LATE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """W: words of int32 and X: words of int64 hold four numbers each; N_WORDS, stride_w: words."""
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WORDS)
    at = W + n.to(tl.int64)[:, None] * stride_w + k[None, :]
    w = _load_words(at, k, N_WORDS, EVEN)
    if PDL:
        if not LATE:  # see `launch`
            tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
        if LATE:
            tl.extra.cuda.gdc_launch_dependents()
    total = tl.zeros([ROWS, WORDS], tl.float32)
    for first in range(0, N_WORDS, WORDS):
        following = w
        if first + WORDS < N_WORDS:  # the next weights are on their way while these are used
            following = _load_words(at + first + WORDS, first + WORDS + k, N_WORDS, EVEN)
        x = tl.load(X + first + k, mask=first + k < N_WORDS, other=0)
        low, high = x.to(tl.int32), (x >> 32).to(tl.int32)  # two bfloat16 numbers each: the upper halves of float32 ones
        w0, w1, w2, w3 = numbers_of_words(w)
        total += w0 * (low << 16).to(tl.float32, bitcast=True)[None, :]
        total += w1 * (low & -65536).to(tl.float32, bitcast=True)[None, :]
        total += w2 * (high << 16).to(tl.float32, bitcast=True)[None, :]
        total += w3 * (high & -65536).to(tl.float32, bitcast=True)[None, :]
        w = following
    y = tl.sum(total, 1) * tl.load(SCALES + n)
    if HAS_BIAS:
        y += tl.load(BIAS + n).to(tl.float32)
    tl.store(Y + n, y.to(Y.dtype.element_ty))


def fp8_gemv(
    x: torch.Tensor, numbers: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None, shape: GemvShape
) -> torch.Tensor:
    """x [1, K] bfloat16 @ (numbers [N, K] e4m3 * scales [N] float32).T + bias [N] -> a new [1, N] of x's dtype; sums in
    float32. All contiguous. shape.k_block counts inputs.

    Raises ValueError: K is no multiple of 16, or N none of shape.rows."""
    n_out, width = numbers.shape
    if width % 16 or n_out % shape.rows:
        raise ValueError(f"numbers: expected multiples of {shape.rows} rows and 16 columns, got {n_out} x {width}")
    out = torch.empty((1, n_out), dtype=x.dtype, device=x.device)
    n_words, words = width // WORD, shape.k_block // WORD
    pdl = dependent_launch(x.device)
    _fp8_gemv_kernel[(n_out // shape.rows,)](
        numbers.view(torch.int32), x.view(torch.int64), scales if bias is None else bias, scales, out, n_words, n_words,
        ROWS=shape.rows, WORDS=words, EVEN=n_words % words == 0, HAS_BIAS=bias is not None, LATE=width <= LATE_WIDTH, PDL=pdl,
        num_warps=shape.warps, launch_pdl=pdl,
    )  # fmt: skip
    return out


def fp8_gemv_shape(n_out: int, width: int) -> GemvShape | None:
    """The cut for a weight [n_out, width] of 8-bit numbers, or None where its sides are no multiples of what programs take.
    Measured on an H100 (`python3 -m ops.gpu.fp8_rows_sweep`): within 3 % of the fastest for eight weights."""
    if n_out % 4 or width % 16:
        return None
    return GemvShape(rows=4, k_block=2048 if 1024 < width <= LATE_WIDTH else 1024, warps=4)
