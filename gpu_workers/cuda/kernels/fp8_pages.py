"""Keys and values as 8-bit floats (e4m3) with a scale for each token and kv head, in kernels.

`layers.page_format.quantise_fp8` is the reference. Attention widens numbers to float16, which is exact and one instruction for
two of them, and never multiplies them by a scale: it multiplies scores by the scales of their keys, and weights by those of
their values. A weight times a scale may be too small for float16, so it is taken VALUE_UNIT times, and the sum is divided by
that; values may reach 14,000 then. Scales outside of the products are an idea of FlashAttention 3 (Shah et al., 2024), which
has one for all tokens of a head.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

from gpu_workers.layers.page_format import GREATEST_FP8, LEAST_SCALE

VALUE_UNIT = tl.constexpr(2048.0)
_TO_SCALE = tl.constexpr(1 / GREATEST_FP8)
_LEAST_SCALE = tl.constexpr(LEAST_SCALE)
_SCALE_BYTES = tl.constexpr(2)
_INTERPRETED = tl.constexpr(knobs.runtime.interpret)
_WIDEN_PAIRS = tl.constexpr(
    "{.reg .b16 low, high; .reg .b32 sorted; prmt.b32 sorted, $2, 0, 0x3120; mov.b32 {low, high}, sorted;"
    " cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high;}"
)


@triton.jit
def scale_places(PAGES, page_start, token, kv_head, stride_slot, PAGE: tl.constexpr):
    """Where the scales of keys or values stand: pointers to bfloat16. page_start: of their pages, in numbers from PAGES on;
    token: within the page; stride_slot: numbers of a token."""
    at = page_start + PAGE * stride_slot + (kv_head * PAGE + token) * _SCALE_BYTES
    return (PAGES + at).to(tl.pointer_type(tl.bfloat16), bitcast=True)


@triton.jit
def scale_of(greatest):
    """From the greatest magnitude of a vector: its scale, bfloat16, and by what its numbers are multiplied, float32."""
    scale = (greatest * _TO_SCALE).to(tl.bfloat16)
    wide = scale.to(tl.float32)
    is_usable = wide > _LEAST_SCALE
    return scale, tl.where(is_usable, tl.div_rn(1.0, tl.where(is_usable, wide, 1.0)), 0.0)


@triton.jit
def store_vector(x, PAGES, place, scale_place, is_stored):
    """Quantises x, a vector of floats of any dtype, and stores it at the offsets `place` of PAGES, with its scale. Returns the
    numbers that readers will see, float32. is_stored: one truth value."""
    x = x.to(tl.float32)
    scale, inverse = scale_of(tl.max(tl.abs(x), 0))
    numbers = (x * inverse).to(PAGES.dtype.element_ty)
    tl.store(PAGES + place, numbers, mask=is_stored)
    tl.store(scale_place, scale, mask=is_stored)
    return numbers.to(tl.float32) * scale.to(tl.float32)


@triton.jit
def load_scales(K, V, table, key, seen, kv_head, stride_page, stride_slot, PAGE: tl.constexpr):
    """The scales of keys and of values, bfloat16, in the shape of `key`; zeros where not `seen`. They are widened where they
    are used, because a program waits for a load only there."""
    page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64) * stride_page
    k = tl.load(scale_places(K, page, key % PAGE, kv_head, stride_slot, PAGE), mask=seen, other=0.0)
    v = tl.load(scale_places(V, page, key % PAGE, kv_head, stride_slot, PAGE), mask=seen, other=0.0)
    return k, v


@triton.jit
def widen_pairs(pairs):
    """pairs: two e4m3 numbers in an int16 each -> the first of each and the second of each, float16."""
    if _INTERPRETED:
        first, second = (pairs & 0xFF).to(tl.uint8), ((pairs >> 8) & 0xFF).to(tl.uint8)
        first = first.to(tl.float8e4nv, bitcast=True).to(tl.float16)
        second = second.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        first, second = tl.inline_asm_elementwise(
            _WIDEN_PAIRS, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    return first, second
