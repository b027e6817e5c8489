"""Weights on their way into the L2 cache before a kernel may begin: they do not depend on what ran before it."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

_LINE_BITS = tl.constexpr(1024)


@triton.jit
def prefetch_rows(W, weight_row, first, K, stride_w, LINES: tl.constexpr):
    """Brings LINES lines of 128 bytes of each of these weight rows, from input `first` on, into the L2 cache."""
    line: tl.constexpr = _LINE_BITS // W.dtype.element_ty.primitive_bitwidth  # numbers
    place = tl.minimum(first + tl.arange(0, LINES) * line, K - 1)
    at = W + weight_row.to(tl.int64)[:, None] * stride_w + place[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )
