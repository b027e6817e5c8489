"""Keys and values as small integers (`layers.small_pages` is the reference) in kernels.

Attention reads codes times their scales, which float16 holds exactly for scales from 2 ** -14. They stay transformed: it
transforms queries instead of keys, and its sums instead of values. A transform of rows is a product with the matrix of signs.
A new vector is transformed by sums and differences in the order of the reference, so that it gets the same bytes.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from gpu_workers.layers.small_integers import DROPPED_BITS, FIRST_SCALE, LAST_SCALE
from gpu_workers.layers.small_pages import KEY_LEVELS, KEY_PLANES, VALUE_LEVELS, VALUE_PLANES

_KEY_LEVELS, _VALUE_LEVELS = tl.constexpr(KEY_LEVELS), tl.constexpr(VALUE_LEVELS)
_KEY_PLANES, _VALUE_PLANES = tl.constexpr(KEY_PLANES), tl.constexpr(VALUE_PLANES)
_FIRST_SCALE, _LAST_SCALE, _DROPPED = tl.constexpr(FIRST_SCALE), tl.constexpr(LAST_SCALE), tl.constexpr(DROPPED_BITS)
_BELOW_HALF = tl.constexpr((1 << (DROPPED_BITS - 1)) - 1)
_ELEVENTH, _ELEVENTH_SHIFT = tl.constexpr(373), tl.constexpr(12)  # field * 373 >> 12 is field // 11 for fields of seven bits


@triton.jit
def _signs(D: tl.constexpr):
    """The matrix of signs of the transform, [D, D] float16: zeros between halves."""
    a, b = tl.arange(0, D)[:, None], tl.arange(0, D)[None, :]
    parity = (a % (D // 2)) & (b % (D // 2))
    parity ^= parity >> 4
    parity ^= parity >> 2
    parity ^= parity >> 1
    sign = (1 - 2 * (parity & 1)).to(tl.float16)
    return tl.where((a // (D // 2)) == (b // (D // 2)), sign, 0.0)


@triton.jit
def transformed_rows(x, D: tl.constexpr):
    """Rows [n, D] of any float dtype, taken as float16, n at least 16, transformed: float32."""
    return tl.dot(x.to(tl.float16), _signs(D)) * (D // 2) ** -0.5


@triton.jit
def _load_bits(WORDS, seen, D: tl.constexpr, N_BITS: tl.constexpr):
    """The first N_BITS bits from each pointer of WORDS [BN], bytes, once for every D numbers: [BN, D] int32, number d has bit
    d % N_BITS."""
    WORD: tl.constexpr = 32 if N_BITS % 32 == 0 else (16 if N_BITS % 16 == 0 else 8)
    if WORD == 32:
        WORDS = WORDS.to(tl.pointer_type(tl.uint32), bitcast=True)
    elif WORD == 16:
        WORDS = WORDS.to(tl.pointer_type(tl.uint16), bitcast=True)
    at = tl.arange(0, D) % N_BITS
    found = tl.load(WORDS, mask=seen, other=0).to(tl.uint32)[:, None]
    for index in tl.static_range(1, N_BITS // WORD):
        word = tl.load(WORDS + index, mask=seen, other=0).to(tl.uint32)[:, None]
        found = tl.where((at // WORD == index)[None, :], word, found)
    return ((found >> (at % WORD)[None, :].to(tl.uint32)) & 1).to(tl.int32)


@triton.jit
def _scales_of_codes(codes):
    """What scale codes stand for, float32."""
    return ((codes.to(tl.int32) + _FIRST_SCALE) << _DROPPED).to(tl.float32, bitcast=True)


@triton.jit
def load_small(
    PAGES, page, token, seen, kv_head, n_kv_heads, D: tl.constexpr, PAGE: tl.constexpr, IS_KEY: tl.constexpr
):  # fmt: skip
    """Keys or values of a kv head as they are stored, transformed: [BN, D] float16, of any finite value where not `seen`.
    page: where the page of each begins in PAGES; token: within it."""
    NUMBER_BYTES: tl.constexpr = D // 2 if IS_KEY else D // 4
    PLANE_BYTES: tl.constexpr = (_KEY_PLANES if IS_KEY else _VALUE_PLANES) * D // 16
    d = tl.arange(0, D)
    vector = token * n_kv_heads + kv_head
    field = d % (D // 2)
    is_second = (d >= D // 2)[None, :]
    numbers = PAGES + (page + vector * NUMBER_BYTES)[:, None] + (field % NUMBER_BYTES)[None, :]
    both = tl.load(numbers, mask=seen[:, None], other=0).to(tl.int32)
    planes = PAGES + page + PAGE * n_kv_heads * NUMBER_BYTES + vector * PLANE_BYTES
    if IS_KEY:
        number = tl.where(is_second, both >> 4, both & 15) | (_load_bits(planes, seen, D, D) << 4)
        middle = (_KEY_LEVELS - 1) / 2
    else:
        number = tl.where((field >= NUMBER_BYTES)[None, :], both >> 4, both & 15)
        for plane in tl.static_range(_VALUE_PLANES):
            number |= _load_bits(planes + plane * (D // 16), seen, D, D // 2) << (4 + plane)
        first = (number * _ELEVENTH) >> _ELEVENTH_SHIFT
        number = tl.where(is_second, number - first * _VALUE_LEVELS, first)
        middle = (_VALUE_LEVELS - 1) / 2
    scales = PAGES + page + PAGE * n_kv_heads * (NUMBER_BYTES + PLANE_BYTES) + kv_head * 2 * PAGE + token
    one = _scales_of_codes(tl.load(scales, mask=seen, other=0))[:, None]
    other = _scales_of_codes(tl.load(scales + PAGE, mask=seen, other=0))[:, None]
    return ((number.to(tl.float32) - middle) * tl.where(is_second, other, one)).to(tl.float16)


@triton.jit
def _added_and_subtracted(x, D: tl.constexpr, APART: tl.constexpr):
    """The sums and differences of numbers so far apart in a vector [D]; x itself where that leaves its half."""
    if APART < D // 2:
        first, second = tl.split(tl.permute(tl.reshape(x, (D // (2 * APART), 2, APART)), (0, 2, 1)))
        x = tl.reshape(tl.permute(tl.join(first + second, first - second), (0, 2, 1)), (D,))
    return x


@triton.jit
def _transformed(x, D: tl.constexpr):
    """A vector [D], float32, transformed by sums and differences of numbers 1, 2, 4, ... apart."""
    for stage in tl.static_range(8):  # up to heads of 512 numbers
        x = _added_and_subtracted(x, D, 1 << stage)
    return x * (D // 2) ** -0.5


@triton.jit
def _packed(bits, N: tl.constexpr):
    """bits [N], 0 or 1 -> bytes [N / 8], the first of eight in the lowest bit."""
    eights = tl.reshape(bits, (N // 8, 8)) << tl.arange(0, 8)[None, :]
    return tl.sum(eights, 1).to(tl.uint8)


@triton.jit
def store_small(
    x, PAGES, page, token, kv_head, n_kv_heads, is_stored, D: tl.constexpr, PAGE: tl.constexpr, IS_KEY: tl.constexpr
):  # fmt: skip
    """Quantises x, a vector [D] of floats of any dtype, and stores its parts. Returns what readers will see, transformed,
    float32 [D]. page: where its page begins in PAGES; token: within it; is_stored: one truth value."""
    LEVELS: tl.constexpr = _KEY_LEVELS if IS_KEY else _VALUE_LEVELS
    NUMBER_BYTES: tl.constexpr = D // 2 if IS_KEY else D // 4
    PLANE_BYTES: tl.constexpr = (_KEY_PLANES if IS_KEY else _VALUE_PLANES) * D // 16
    halves = tl.reshape(_transformed(x.to(tl.float32), D), (2, D // 2))
    bits = (tl.max(tl.abs(halves), 1) * (2 / LEVELS)).to(tl.int32, bitcast=True)
    rounded = (bits + _BELOW_HALF + ((bits >> _DROPPED) & 1)) >> _DROPPED
    scale_codes = tl.minimum(tl.maximum(rounded - _FIRST_SCALE, 0), _LAST_SCALE)
    scales = _scales_of_codes(scale_codes)
    inverses = tl.div_rn(tl.full([2], 1.0, tl.float32), scales)
    shift = tl.full([2, D // 2], LEVELS / 2, tl.float32)
    cells = tl.floor(tl.fma(halves, tl.broadcast_to(inverses[:, None], halves.shape), shift))
    codes = tl.minimum(tl.maximum(cells, 0.0), LEVELS - 1.0).to(tl.int32)
    first, second = tl.split(tl.permute(codes, (1, 0)))
    vector = token * n_kv_heads + kv_head
    numbers = PAGES + page + vector * NUMBER_BYTES + tl.arange(0, NUMBER_BYTES)
    planes = PAGES + page + PAGE * n_kv_heads * NUMBER_BYTES + vector * PLANE_BYTES
    if IS_KEY:
        tl.store(numbers, ((first & 15) | ((second & 15) << 4)).to(tl.uint8), mask=is_stored)
        tl.store(planes + tl.arange(0, D // 8), _packed(tl.reshape(codes >> 4, (D,)), D), mask=is_stored)
    else:
        fields = first * LEVELS + second
        low, high = tl.split(tl.permute(tl.reshape(fields & 15, (2, D // 4)), (1, 0)))
        tl.store(numbers, (low | (high << 4)).to(tl.uint8), mask=is_stored)
        for plane in tl.static_range(_VALUE_PLANES):
            bits_of = planes + plane * (D // 16) + tl.arange(0, D // 16)
            tl.store(bits_of, _packed((fields >> (4 + plane)) & 1, D // 2), mask=is_stored)
    at = PAGE * n_kv_heads * (NUMBER_BYTES + PLANE_BYTES) + kv_head * 2 * PAGE + token
    tl.store(PAGES + page + at + tl.arange(0, 2) * PAGE, scale_codes.to(tl.uint8), mask=is_stored)
    return tl.reshape((codes.to(tl.float32) - (LEVELS - 1) / 2) * scales[:, None], (D,))
