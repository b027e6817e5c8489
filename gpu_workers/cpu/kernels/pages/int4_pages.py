"""Keys and values as small integers, in vector code: the format of `layers.small_pages`.

Keys and values are written with the bytes that torch writes. Halves of vectors are lists of vectors of the processor, and
head_dim is a constant of the compilation, because the transform crosses lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from gpu_workers.cpu.kernels import rows
from gpu_workers.cpu.kernels.pages.int8_pages import I8
from gpu_workers.cpu.kernels.vector_code import F32, I16, I32, Value, VectorCode
from gpu_workers.layers.small_integers import DROPPED_BITS, FIRST_SCALE, LAST_SCALE
from gpu_workers.layers.small_pages import KEY_LEVELS, KEY_PLANES, VALUE_LEVELS, VALUE_PLANES
from messages.steps import PAGE_TOKENS

_LOW = 15  # the bits of a field that stand in `numbers`
_N_LOW = 4
_BF16_ONE = 0x3F80


class SmallVectors:
    """Where the vectors of one kv head stand in a page, and their fields. Addresses are those of pages in memory."""

    def __init__(self, code: VectorCode, head_dim: int, n_kv_heads: Value, head: Value, *, is_key: bool) -> None:
        self._code, self._lanes, self._head_dim, self._is_key = code, code.lanes, head_dim, is_key
        self._head, self._n_kv_heads = head, n_kv_heads
        self._number_bytes = head_dim // 2 if is_key else head_dim // 4
        self._plane_bytes, self._n_planes = head_dim // 16, KEY_PLANES if is_key else VALUE_PLANES

    def numbers(self, page: Value, token: Value) -> Value:
        """The address of one token's numbers."""
        code = self._code
        index = code.add(code.mul(token, self._n_kv_heads), self._head)
        return code.at(page, code.mul(index, self._number_bytes), I8)

    def planes(self, page: Value, token: Value) -> Value:
        """The address of one token's planes."""
        code = self._code
        index = code.add(code.mul(token, self._n_kv_heads), self._head)
        start = code.mul(self._n_kv_heads, PAGE_TOKENS * self._number_bytes)
        return code.at(page, code.add(start, code.mul(index, self._n_planes * self._plane_bytes)), I8)

    def scales(self, page: Value, half: int, token: Value) -> Value:
        """The address of the scale code of one token's half. Those of the next tokens follow."""
        code = self._code
        bytes_before = self._number_bytes + self._n_planes * self._plane_bytes
        start = code.mul(self._n_kv_heads, PAGE_TOKENS * bytes_before)
        within = code.add(code.mul(self._head, 2 * PAGE_TOKENS), half * PAGE_TOKENS)
        return code.at(page, code.add(code.add(start, within), token), I8)

    def load_scales(self, page: Value, half: int, token: int) -> Value:
        """The scales of as many tokens as there are lanes, float32."""
        found = _load_words(self._code, self.scales(page, half, self._code.int(token)))
        return scales_of_codes(self._code, found)

    def load_keys(self, page: Value, token: Value) -> tuple[list[Value], list[Value]]:
        """The codes of both halves of a key, as float32."""
        code, planes = self._code, self.planes(page, token)
        numbers, halves = self.numbers(page, token), ([], [])
        for part in range(self._head_dim // 2 // self._lanes):
            both = _load_words(code, code.at(numbers, part * self._lanes, I8))
            for half, low in enumerate((code.b.and_(both, _word(code, _LOW)), code.b.lshr(both, _word(code, _N_LOW)))):
                halves[half].append(_float(code, self._with_bit(low, planes, half, part, 1 << _N_LOW)))
        return halves

    def load_key_pairs(self, page: Value, token: Value) -> tuple[list[Value], list[Value]]:
        """The numbers 1 + code / 32 of both halves of a key as bfloat16, two in a lane: operands of `VectorCode.dot_pairs`. The
        bits of a code are the first of the mantissa."""
        code, b, n, halves = self._code, self._code.b, 2 * self._lanes, ([], [])
        numbers, planes, words = self.numbers(page, token), self.planes(page, token), ir.VectorType(I16, n)
        bits, one, shift, top = (ir.Constant(words, [I16(x)] * n) for x in (_LOW << 2, _BF16_ONE, 2, 1 << (_N_LOW + 2)))
        for part in range(self._head_dim // 2 // n):
            both = b.load(code.at(numbers, part * n, I8), typ=ir.VectorType(I8, n), align=1)
            both = b.zext(both, words)
            for half, moved in enumerate((b.shl(both, shift), b.lshr(both, shift))):
                low = b.or_(b.and_(moved, bits), one)
                address = code.at(planes, half * self._plane_bytes + part * n // 8, I8)
                mask = b.bitcast(b.load(address, typ=ir.IntType(n), align=1), ir.VectorType(ir.IntType(1), n))
                halves[half].append(b.bitcast(b.select(mask, b.add(low, top), low), code.vector))
        return halves

    def load_values(self, page: Value, token: Value) -> tuple[list[Value], list[Value]]:
        """The codes of both halves of a value, as float32."""
        code, b, planes = self._code, self._code.b, self.planes(page, token)
        numbers, n_bytes = self.numbers(page, token), self._number_bytes // self._lanes
        low, high = [], []
        for part in range(n_bytes):
            both = _load_words(code, code.at(numbers, part * self._lanes, I8))
            low.append(b.and_(both, _word(code, _LOW)))
            high.append(b.lshr(both, _word(code, _N_LOW)))
        first, second = [], []
        for part, field in enumerate(low + high):
            for plane in range(VALUE_PLANES):
                field = self._with_bit(field, planes, plane, part, 1 << (_N_LOW + plane))
            number = _float(code, field)
            step = code.constant(1 / VALUE_LEVELS)
            x = code.unary("llvm.floor", code.fma(number, step, code.constant(0.5 / VALUE_LEVELS)))
            first.append(x)
            second.append(code.fma(x, code.constant(-VALUE_LEVELS), number))
        return first, second

    def _with_bit(self, low: Value, planes: Value, plane: int, part: int, worth: int) -> Value:
        """low, plus `worth` in each lane whose bit of the plane is set."""
        code, b, kind = self._code, self._code.b, ir.IntType(self._lanes)
        address = code.at(planes, plane * self._plane_bytes + part * self._lanes // 8, I8)
        mask = b.bitcast(b.load(address, typ=kind, align=1), ir.VectorType(ir.IntType(1), self._lanes))
        return b.select(mask, b.add(low, _word(code, worth)), low)

    def store_keys(self, page: Value, token: Value, codes: Sequence[Sequence[Value]]) -> None:
        """Writes the codes, whole numbers, of both halves of a key."""
        for half, parts in enumerate(codes):
            for part, number in enumerate(parts):
                self._store_bit(number, self.planes(page, token), half, part, 1 << _N_LOW)
        for part, (first, second) in enumerate(zip(*codes, strict=True)):
            self._store_low(first, second, self.numbers(page, token), part)

    def store_values(self, page: Value, token: Value, codes: Sequence[Sequence[Value]]) -> None:
        """Writes the codes, whole numbers, of both halves of a value."""
        b, levels = self._code.b, _word(self._code, VALUE_LEVELS)
        fields = [b.add(b.mul(first, levels), second) for first, second in zip(*codes, strict=True)]
        for part, field in enumerate(fields):
            for plane in range(VALUE_PLANES):
                self._store_bit(field, self.planes(page, token), plane, part, 1 << (_N_LOW + plane))
        middle = len(fields) // 2
        for part, (low, high) in enumerate(zip(fields[:middle], fields[middle:], strict=True)):
            self._store_low(low, high, self.numbers(page, token), part)

    def _store_low(self, low: Value, high: Value, numbers: Value, part: int) -> None:
        code, b = self._code, self._code.b
        both = b.or_(b.and_(low, _word(code, _LOW)), b.shl(b.and_(high, _word(code, _LOW)), _word(code, _N_LOW)))
        b.store(b.trunc(both, ir.VectorType(I8, self._lanes)), code.at(numbers, part * self._lanes, I8), align=1)

    def _store_bit(self, field: Value, planes: Value, plane: int, part: int, worth: int) -> None:
        code, b = self._code, self._code.b
        bits = b.icmp_signed("!=", b.and_(field, _word(code, worth)), _word(code, 0))
        address = code.at(planes, plane * self._plane_bytes + part * self._lanes // 8, I8)
        b.store(b.bitcast(bits, ir.IntType(self._lanes)), address, align=1)


def hadamard(code: VectorCode, parts: Sequence[Value]) -> list[Value]:
    """A half of a vector times the orthonormal Hadamard matrix, in the order of additions of `layers.small_integers`."""
    values, n = list(parts), len(parts) * code.lanes
    apart = 1
    while apart < code.lanes:
        turned = ir.Constant(ir.VectorType(I32, code.lanes), [I32(lane ^ apart) for lane in range(code.lanes)])
        signs = ir.Constant(code.vector, [F32(-1.0 if lane & apart else 1.0) for lane in range(code.lanes)])
        values = [code.fma(x, signs, code.b.shuffle_vector(x, x, turned)) for x in values]
        apart *= 2
    apart = 1
    while apart < len(values):
        pairs = [(values[i & ~apart], values[i | apart], i & apart) for i in range(len(values))]
        values = [code.b.fsub(x, y) if is_second else code.b.fadd(x, y) for x, y, is_second in pairs]
        apart *= 2
    return [code.b.fmul(x, code.constant(1 / math.sqrt(n))) for x in values]


def quantise(code: VectorCode, halves: Sequence[Sequence[Value]], levels: int) -> tuple[list[list[Value]], list[Value]]:
    """Transformed halves -> the codes of each, whole numbers, and its scale code, in all lanes; see `small_integers`."""
    b, codes, scale_codes = code.b, [], []
    for half in halves:
        greatest = code.unary("llvm.fabs", half[0])
        for part in half[1:]:
            greatest = code.max(code.unary("llvm.fabs", part), greatest)
        scale_code = _scale_code(code, b.fmul(code.fold(greatest, code.max), code.constant(2 / levels)))
        inverse = b.fdiv(code.constant(1.0), scales_of_codes(code, scale_code))
        cells = (b.fadd(b.fmul(part, inverse), code.constant(levels / 2)) for part in half)
        floors = (code.max(code.unary("llvm.floor", cell), code.constant(0.0)) for cell in cells)
        words = ir.VectorType(I32, code.lanes)
        codes.append([b.fptosi(code.min(floor, code.constant(levels - 1)), words) for floor in floors])
        scale_codes.append(scale_code)
    return codes, scale_codes


def scales_of_codes(code: VectorCode, codes: Value) -> Value:
    """What scale codes, whole numbers, stand for: float32."""
    bits = code.b.shl(code.b.add(codes, _word(code, FIRST_SCALE)), _word(code, DROPPED_BITS))
    return code.b.bitcast(bits, code.vector)


def _scale_code(code: VectorCode, scale: Value) -> Value:
    b = code.b
    bits = b.bitcast(scale, ir.VectorType(I32, code.lanes))
    odd = b.and_(b.lshr(bits, _word(code, DROPPED_BITS)), _word(code, 1))
    rounded = b.add(b.add(bits, _word(code, (1 << (DROPPED_BITS - 1)) - 1)), odd)
    found = b.sub(b.lshr(rounded, _word(code, DROPPED_BITS)), _word(code, FIRST_SCALE))
    found = b.select(b.icmp_signed("<", found, _word(code, 0)), _word(code, 0), found)
    return b.select(b.icmp_signed(">", found, _word(code, LAST_SCALE)), _word(code, LAST_SCALE), found)


def write_rope_and_pack(code: VectorCode, is_bf16: bool, head_dim: int) -> None:
    """As `rows.write_rope_and_store`, with the same words, for pages of small integers: numbers of a page are bytes. Rotated
    keys are rounded to the dtype of the model first."""
    b, n_kv_heads, half = code.b, code.argument(rows.N_KV_HEADS), head_dim // 2
    with code.each_unit(code.argument(rows.N_UNITS)) as token:
        cos_sin = rows.rotate_queries(code, is_bf16, token)
        new = rows.new_vectors(code, is_bf16, token)
        with code.loop(0, n_kv_heads) as head:
            start, keys, values = code.mul(head, head_dim), ([], []), ([], [])
            for part in range(0, half, code.lanes):
                at = code.add(start, part)
                for parts, x in zip(keys, rows.rotated(code, is_bf16, new.k, at, code.int(part), cos_sin), strict=True):
                    parts.append(code.rounded_to_bf16(x) if is_bf16 else x)
                values[0].append(code.load(new.v, at, is_bf16))
                values[1].append(code.load(new.v, code.add(at, half), is_bf16))
            for pages, halves, is_key in ((rows.K_PAGES, keys, True), (rows.V_PAGES, values, False)):
                vectors = SmallVectors(code, head_dim, n_kv_heads, head, is_key=is_key)
                base = code.at(code.pointer(pages), new.page, I8)
                turned = [hadamard(code, parts) for parts in halves]
                codes, scales = quantise(code, turned, KEY_LEVELS if is_key else VALUE_LEVELS)
                (vectors.store_keys if is_key else vectors.store_values)(base, new.offset, codes)
                for index, scale in enumerate(scales):
                    b.store(b.trunc(b.extract_element(scale, I32(0)), I8), vectors.scales(base, index, new.offset), align=1)


def _load_words(code: VectorCode, address: Value) -> Value:
    """Consecutive unsigned bytes, as integers of 32 bits."""
    found = code.b.load(address, typ=ir.VectorType(I8, code.lanes), align=1)
    return code.b.zext(found, ir.VectorType(I32, code.lanes))


def _float(code: VectorCode, words: Value) -> Value:
    return code.b.sitofp(words, code.vector)


def _word(code: VectorCode, value: int) -> Value:
    return ir.Constant(ir.VectorType(I32, code.lanes), [I32(value)] * code.lanes)
