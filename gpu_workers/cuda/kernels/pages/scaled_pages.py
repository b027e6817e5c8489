"""Keys and values as 8-bit numbers, floats (e4m3) or integers, with a scale for each token and kv head, in kernels.

`layers.page_format` is the reference. Attention widens numbers to float16, which is exact and about one instruction for two
of them, and never multiplies them by a scale: it multiplies scores by the scales of their keys, and weights by those of their
values. A weight times a scale may be too small for float16, so it is taken VALUE_UNIT times, and the sum is divided by that;
values may reach 4,000 then. Scales outside of the products are an idea of FlashAttention 3 (Shah et al., 2024), which has one
for all tokens of a head; integers become float16 by way of numbers above 1,024, an idea of Kim et al. (2022).
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

from gpu_workers.layers.page_format import (
    FP8_DROPPED_BITS,
    FP8_STEP,
    GREATEST_FP8,
    GREATEST_INT8,
    LEAST_SCALE,
    N_FP8_STEPS,
)

VALUE_UNIT = tl.constexpr(2048.0)
_GREATEST_FP8, _GREATEST_INT8 = tl.constexpr(GREATEST_FP8), tl.constexpr(GREATEST_INT8)
_LEAST_SCALE = tl.constexpr(LEAST_SCALE)
_FP8_STEP, _N_FP8_STEPS, _DROPPED = tl.constexpr(FP8_STEP), tl.constexpr(N_FP8_STEPS), tl.constexpr(FP8_DROPPED_BITS)
_BELOW_HALF = tl.constexpr((1 << (FP8_DROPPED_BITS - 1)) - 1)
_SCALE_BYTES = tl.constexpr(2)
_TO_WHOLE = tl.constexpr(1.5 * 2**23)  # added and subtracted, it leaves whole numbers, ties to even
_INTERPRETED = tl.constexpr(knobs.runtime.interpret)
_WIDEN_FP8_PAIRS = tl.constexpr(
    "{.reg .b16 low, high; .reg .b32 sorted; prmt.b32 sorted, $2, 0, 0x3120; mov.b32 {low, high}, sorted;"
    " cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high;}"
)
# An integer with its first bit turned is 128 more, without a sign; behind 0x64 it is the float16 1,024 + 128 + the integer.
_WIDEN_INT8_PAIRS = tl.constexpr(
    "{.reg .b32 x, even, odd, base; mov.b32 base, 0x64806480; xor.b32 x, $2, 0x80808080;"
    " prmt.b32 even, x, 0x64646464, 0x4240; prmt.b32 odd, x, 0x64646464, 0x4341;"
    " sub.f16x2 $0, even, base; sub.f16x2 $1, odd, base;}"
)
_WIDEN_INT8 = tl.constexpr(
    "{.reg .b32 x, low, high, base; mov.b32 base, 0x64806480; xor.b32 x, $2, 0x80808080;"
    " prmt.b32 low, x, 0x64646464, 0x4140; prmt.b32 high, x, 0x64646464, 0x4342;"
    " sub.f16x2 $0, low, base; sub.f16x2 $1, high, base;}"
)


@triton.jit
def scale_places(PAGES, page_start, token, kv_head, stride_slot, PAGE: tl.constexpr):
    """Where the scales of keys or values stand: pointers to bfloat16. page_start: of their pages, in numbers from PAGES on;
    token: within the page; stride_slot: numbers of a token."""
    at = page_start + PAGE * stride_slot + (kv_head * PAGE + token) * _SCALE_BYTES
    return (PAGES + at).to(tl.pointer_type(tl.bfloat16), bitcast=True)


@triton.jit
def _squared_errors(x):
    """The squares of what x, float32, loses with the digits of e4m3; see `page_format.fp8_digits`."""
    bits = x.to(tl.int32, bitcast=True)
    digits = (bits + _BELOW_HALF + ((bits >> _DROPPED) & 1)) >> _DROPPED << _DROPPED
    error = digits.to(tl.float32, bitcast=True) - x
    return error * error


@triton.jit
def _fp8_top(x, y, greatest):
    """What the greatest magnitude of the key with the parts x and y, float32, is to become; see `page_format`."""
    is_usable = greatest > _LEAST_SCALE
    unit = tl.where(is_usable, tl.div_rn(1.0, tl.where(is_usable, greatest, 1.0)), 0.0)
    best, least = greatest * 0.0 + _GREATEST_FP8, greatest * 0.0 + float("inf")
    for index in tl.static_range(_N_FP8_STEPS):
        top = _GREATEST_FP8 - _FP8_STEP * index
        errors = tl.sum(_squared_errors(x * (unit * top)) + _squared_errors(y * (unit * top)), 0) * (1 / (top * top))
        best = tl.where(errors < least, top, best)
        least = tl.minimum(errors, least)
    return best


@triton.jit
def scale_of(x, y, PAGES, IS_KEY: tl.constexpr):
    """The scale of a vector with the parts x and y, float32: bfloat16, and by what its numbers are multiplied, float32."""
    greatest = tl.max(tl.maximum(tl.abs(x), tl.abs(y)), 0)
    if PAGES.dtype.element_ty == tl.int8:
        scale = (greatest * (1 / _GREATEST_INT8)).to(tl.bfloat16)
    elif IS_KEY:
        scale = (greatest * tl.div_rn(1.0, _fp8_top(x, y, greatest))).to(tl.bfloat16)
    else:
        scale = (greatest * (1 / _GREATEST_FP8)).to(tl.bfloat16)
    wide = scale.to(tl.float32)
    is_usable = wide > _LEAST_SCALE
    return scale, tl.where(is_usable, tl.div_rn(1.0, tl.where(is_usable, wide, 1.0)), 0.0)


@triton.jit
def rounded(x, PAGES):
    """Numbers that have been divided by their scale, float32, in the dtype of PAGES."""
    if PAGES.dtype.element_ty == tl.int8:
        within = tl.minimum(tl.maximum(x, -_GREATEST_INT8), _GREATEST_INT8)
        return ((within + _TO_WHOLE) - _TO_WHOLE).to(tl.int8)
    else:
        return x.to(PAGES.dtype.element_ty)


@triton.jit
def store_vector(x, PAGES, place, scale_place, is_stored, IS_KEY: tl.constexpr):
    """Quantises x, a vector of floats of any dtype, and stores it at the offsets `place` of PAGES, with its scale. Returns the
    numbers that readers will see, float32. is_stored: one truth value."""
    x = x.to(tl.float32)
    scale, inverse = scale_of(x, x, PAGES, IS_KEY)
    numbers = rounded(x * inverse, PAGES)
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
def widen(numbers):
    """8-bit numbers -> float16."""
    if numbers.dtype == tl.int8 and not _INTERPRETED:
        return tl.inline_asm_elementwise(_WIDEN_INT8, "=r,=r,r", [numbers], dtype=tl.float16, is_pure=True, pack=4)
    else:
        return numbers.to(tl.float16)


@triton.jit
def widen_pairs(pairs, PAGES):
    """pairs: two 8-bit numbers of the dtype of PAGES in an int16 each -> the first of each, the second of each, float16."""
    if _INTERPRETED:
        first, second = (pairs & 0xFF).to(tl.uint8), ((pairs >> 8) & 0xFF).to(tl.uint8)
        first = first.to(PAGES.dtype.element_ty, bitcast=True).to(tl.float16)
        second = second.to(PAGES.dtype.element_ty, bitcast=True).to(tl.float16)
    elif PAGES.dtype.element_ty == tl.int8:
        first, second = tl.inline_asm_elementwise(
            _WIDEN_INT8_PAIRS, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:
        first, second = tl.inline_asm_elementwise(
            _WIDEN_FP8_PAIRS, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    return first, second
