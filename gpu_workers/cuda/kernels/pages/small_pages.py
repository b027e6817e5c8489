"""Keys and values as small integers (`layers.small_pages` is the reference) in kernels.

Attention reads codes times their scales, which float16 holds exactly for scales from 2 ** -14. They stay transformed: it
transforms queries instead of keys, and its sums instead of values. A transform of rows is a product with the matrix of signs.
Two numbers are unpacked at once: bits of both words of a pair go to the same places of the mantissas of two float16.
A new vector is transformed by sums and differences in the order of the reference, so that it gets the same bytes.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

from gpu_workers.layers.small_integers import DROPPED_BITS, FIRST_SCALE, LAST_SCALE
from gpu_workers.layers.small_pages import KEY_LEVELS, KEY_PLANES, VALUE_LEVELS, VALUE_PLANES

_KEY_LEVELS, _VALUE_LEVELS = tl.constexpr(KEY_LEVELS), tl.constexpr(VALUE_LEVELS)
_KEY_PLANES, _VALUE_PLANES = tl.constexpr(KEY_PLANES), tl.constexpr(VALUE_PLANES)
_FIRST_SCALE, _LAST_SCALE, _DROPPED = tl.constexpr(FIRST_SCALE), tl.constexpr(LAST_SCALE), tl.constexpr(DROPPED_BITS)
_BELOW_HALF = tl.constexpr((1 << (DROPPED_BITS - 1)) - 1)
_VALUE_FIELDS = tl.constexpr(VALUE_LEVELS**2)
_TO_WHOLE = tl.constexpr(1.5 * 2**10)  # added and subtracted, it leaves whole numbers in float16
_INTERPRETED = tl.constexpr(knobs.runtime.interpret)


def _unpacking(n_planes: int, first_bit: int, added: int) -> str:
    """PTX for two words of four bytes, $8 and $9, and the bits of `_load_fields` for them, $10 and $11. Writes
    the low fields of the four bytes, then the high ones, as pairs of float16: a field is the end of a mantissa, from
    `first_bit` on, and `added` are the other bits."""
    lines = ["{.reg .b32 x, y, pair, one, other; mov.b32 one, $8; mov.b32 other, $9;"]
    lines += [f".reg .b32 bits{plane}; prmt.b32 bits{plane}, $10, $11, {_both_bytes(plane)};" for plane in range(n_planes)]
    for byte in range(4):
        lines.append(f"prmt.b32 pair, one, other, {_both_bytes(byte)};")
        for high in (0, 4):
            lines.append(f"{_moved('x', 'pair', first_bit - high)} {_taken('x', 15 << first_bit, added << 16 | added)}")
            for plane in range(n_planes):
                bit = 4 + plane + first_bit
                lines.append(f"{_moved('y', f'bits{plane}', bit - high - byte)} {_taken('y', 1 << bit, 'x')} mov.b32 x, y;")
            lines.append(f"mov.b32 ${high + byte}, x;")
    return " ".join([*lines, "}"])


def _both_bytes(byte: int) -> str:
    """The selector of a byte of two words, twice for each, so that shifts move it either way."""
    return f"0x{4 + byte}{4 + byte}{byte}{byte}"


def _moved(to: str, word: str, n_bits: int) -> str:
    return f"shl.b32 {to}, {word}, {n_bits};" if n_bits >= 0 else f"shr.u32 {to}, {word}, {-n_bits};"


def _taken(word: str, mask: int, others: int | str) -> str:
    """These bits of both halves of a word, and all of `others`."""
    return f"lop3.b32 {word}, {word}, {mask << 16 | mask}, {others}, 0xEA;"


_UNPACK_KEYS, _UNPACK_VALUES = tl.constexpr(_unpacking(1, 1, 0x6000)), tl.constexpr(_unpacking(VALUE_PLANES, 0, 0x6400))
_EIGHT, _EIGHT_FROM_FOUR = tl.constexpr((tl.float16,) * 8), tl.constexpr(",".join(["=r"] * 8 + ["r"] * 4))


@triton.jit
def _places(N: tl.constexpr, IS_KEY: tl.constexpr):
    """Which numbers of a half of N stand where, in the order in which pages are read: the first fields of all words of four
    bytes, then the second ones; of values, those of all low fields first."""
    PART: tl.constexpr = N if IS_KEY else N // 2
    d = tl.arange(0, N)
    within = d % PART
    return d - within + within % (PART // 4) * 4 + within // (PART // 4)


@triton.jit
def _signs(a, b):
    """The signs of the transform of a half for its numbers a and b, [N] each: [N, N] float16."""
    parity = a[:, None] & b[None, :]
    parity ^= parity >> 4
    parity ^= parity >> 2
    parity ^= parity >> 1
    return (1 - 2 * (parity & 1)).to(tl.float16)


@triton.jit
def _turned(x, signs):
    """Both halves of rows [n, D], taken as float16, n at least 16, times the signs and the factor of the transform: float32."""
    first, second = tl.split(tl.permute(tl.reshape(x.to(tl.float16), (x.shape[0], 2, signs.shape[0])), (0, 2, 1)))
    return _one_after_other(tl.dot(first, signs), tl.dot(second, signs)) * signs.shape[0] ** -0.5


@triton.jit
def transformed_queries(q, D: tl.constexpr):
    """Rows [n, D] of any float dtype, n at least 16, transformed, in the order of keys in pages: float16."""
    return _turned(q, _signs(tl.arange(0, D // 2), _places(D // 2, True))).to(tl.float16)


@triton.jit
def transformed_back(x, D: tl.constexpr, IS_KEY: tl.constexpr):
    """Rows [n, D] in the order of keys or values in pages, n at least 16, transformed back: float32."""
    return _turned(x, _signs(_places(D // 2, IS_KEY), tl.arange(0, D // 2)))


@triton.jit
def _load_bits(WORDS, seen, N_BITS: tl.constexpr):
    """The N_BITS bits from each pointer of WORDS [BN], bytes, four by four: [BN, N_BITS / 4] int32."""
    WORD: tl.constexpr = 32 if N_BITS % 32 == 0 else (16 if N_BITS % 16 == 0 else 8)
    if WORD == 32:
        WORDS = WORDS.to(tl.pointer_type(tl.uint32), bitcast=True)
    elif WORD == 16:
        WORDS = WORDS.to(tl.pointer_type(tl.uint16), bitcast=True)
    at = tl.arange(0, N_BITS // 4) * 4
    found = tl.load(WORDS, mask=seen, other=0).to(tl.uint32)[:, None]
    for index in tl.static_range(1, N_BITS // WORD):
        word = tl.load(WORDS + index, mask=seen, other=0).to(tl.uint32)[:, None]
        found = tl.where((at // WORD == index)[None, :], word, found)
    return ((found >> (at % WORD)[None, :].to(tl.uint32)) & 15).to(tl.int32)


@triton.jit
def _scales_of_codes(codes):
    """What scale codes stand for, float32."""
    return ((codes.to(tl.int32) + _FIRST_SCALE) << _DROPPED).to(tl.float32, bitcast=True)


@triton.jit
def _load_fields(
    PAGES, page, token, seen, kv_head, n_kv_heads, D: tl.constexpr, PAGE: tl.constexpr, IS_KEY: tl.constexpr
):  # fmt: skip
    """The low and the high fields of the bytes of keys or values: [BN, number of bytes] float16 each, keys with 512 added,
    values with 1,024. Arguments as in `load_small`."""
    N_BYTES: tl.constexpr = D // 2 if IS_KEY else D // 4
    N_HIGH: tl.constexpr = 1 if IS_KEY else _VALUE_PLANES  # bits of a field that stand in planes
    vector = token * n_kv_heads + kv_head
    words = (PAGES + page + vector * N_BYTES).to(tl.pointer_type(tl.int32), bitcast=True)
    words = tl.load(words[:, None] + tl.arange(0, N_BYTES // 4)[None, :], mask=seen[:, None], other=0)
    planes = PAGES + page + PAGE * n_kv_heads * N_BYTES + vector * (N_HIGH * N_BYTES // 4)
    bits = tl.zeros_like(words)
    for plane in tl.static_range(N_HIGH):
        low = planes + plane * (N_BYTES // 4)
        bits |= (_load_bits(low, seen, N_BYTES) | (_load_bits(low + N_BYTES // 8, seen, N_BYTES) << 4)) << (8 * plane)
    if _INTERPRETED:
        return _fields(words, bits, 0, IS_KEY), _fields(words, bits, 4, IS_KEY)
    else:
        a, b, c, d, e, f, g, h = tl.inline_asm_elementwise(
            _UNPACK_KEYS if IS_KEY else _UNPACK_VALUES, _EIGHT_FROM_FOUR, [words, bits], dtype=_EIGHT, is_pure=True, pack=2
        )
        low = _one_after_other(_one_after_other(a, b), _one_after_other(c, d))
        return low, _one_after_other(_one_after_other(e, f), _one_after_other(g, h))


@triton.jit
def _fields(words, bits, HIGH: tl.constexpr, IS_KEY: tl.constexpr):
    """What `_unpacking` gives of low fields (HIGH 0) or high ones (4), in Triton's interpreter."""
    first = _one_after_other(_field(words, bits, 0, HIGH, IS_KEY), _field(words, bits, 1, HIGH, IS_KEY))
    return _one_after_other(first, _one_after_other(_field(words, bits, 2, HIGH, IS_KEY), _field(words, bits, 3, HIGH, IS_KEY)))


@triton.jit
def _field(words, bits, BYTE: tl.constexpr, HIGH: tl.constexpr, IS_KEY: tl.constexpr):
    number = (words >> (8 * BYTE + HIGH)) & 15
    for plane in tl.static_range(1 if IS_KEY else _VALUE_PLANES):
        number |= ((bits >> (8 * plane + HIGH + BYTE)) & 1) << (4 + plane)
    return (number + (512 if IS_KEY else 1024)).to(tl.float16)


@triton.jit
def _one_after_other(first, second):
    """[n, m] each -> [n, 2 m]."""
    return tl.reshape(tl.permute(tl.join(first, second), (0, 2, 1)), (first.shape[0], first.shape[1] * 2))


@triton.jit
def load_small(
    PAGES, page, token, seen, kv_head, n_kv_heads, D: tl.constexpr, PAGE: tl.constexpr, IS_KEY: tl.constexpr
):  # fmt: skip
    """Keys or values of a kv head as they are stored, transformed, in the order of `_places`: [BN, D] float16, of any finite
    value where not `seen`. page: where the page of each begins in PAGES; token: within it."""
    low, high = _load_fields(PAGES, page, token, seen, kv_head, n_kv_heads, D, PAGE, IS_KEY)
    if IS_KEY:
        middle: tl.constexpr = 512 + (_KEY_LEVELS - 1) / 2
        first, second = low - middle, high - middle
    else:
        field = _one_after_other(low, high) - (1024 + _VALUE_FIELDS // 2)
        first = (field * (1 / _VALUE_LEVELS) + _TO_WHOLE) - _TO_WHOLE
        second = field - first * _VALUE_LEVELS
    VECTOR_BYTES: tl.constexpr = D // 2 + _KEY_PLANES * D // 16 if IS_KEY else D // 4 + _VALUE_PLANES * D // 16
    scales = PAGES + page + PAGE * n_kv_heads * VECTOR_BYTES + kv_head * 2 * PAGE
    one, other = _load_scales(scales, token, seen), _load_scales(scales + PAGE, token, seen)
    return _one_after_other(first * one[:, None], second * other[:, None])


@triton.jit
def _load_scales(CODES, token, seen):
    """The scales of tokens whose codes begin at CODES: float16. Words are loaded, because those can be loaded ahead."""
    words = tl.load(CODES.to(tl.pointer_type(tl.int32), bitcast=True) + token // 4, mask=seen, other=0)
    return _scales_of_codes((words >> (token % 4 * 8)) & 0xFF).to(tl.float16)


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
    numbers = (codes.to(tl.float32) - (LEVELS - 1) / 2) * scales[:, None]
    return tl.reshape(tl.permute(tl.reshape(numbers, (D // NUMBER_BYTES, NUMBER_BYTES // 4, 4)), (0, 2, 1)), (D,))
