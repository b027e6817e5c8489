"""The product of rows with a weight of 8-bit integers, and how rows become integers before it; layout: `int8_weights`.

A row of the input is cut into groups, as the weight is. Each group gets a scale, the greatest magnitude / 127, and integers
of -127 to 127. The products of a group are added up in 32-bit integers, so their sum is exact and no order matters; the sums of
the groups are scaled and added in float32, one group after the other. So the result for a row depends neither on the rows
beside it nor on the processor. One row of a step in memory:

    n_groups * GROUP integers | n_groups scales, float32 | n_groups corrections, int32

A correction is -128 times the sum of the integers: it takes away what the 128 adds that each stored weight has too much.
"""

from __future__ import annotations

from llvmlite import ir

from gpu_workers.cpu.kernels.int8_weights import BLOCK, GREATEST, GROUP, GROUP_BYTES, LEAST_SCALE, SCALES_BYTES, TOGETHER, ZERO
from gpu_workers.cpu.kernels.passes import Division, write_passes
from gpu_workers.cpu.kernels.vector_code import F32, FIRST_WORD, I16, I32, I64, Value, VectorCode

N_UNITS = FIRST_WORD  # of both kernels
X, X_STRIDE, N_IN, QUANTISED = range(N_UNITS + 1, N_UNITS + 5)
ROWS, WEIGHT, OUT, N_ROWS, N_GROUPS, N_OUT, PASS_ROWS, SHARE = range(N_UNITS + 1, N_UNITS + 9)
MOST_ROWS = 3  # in one pass over a block; sums of so many rows, in integers and scaled, fill the registers
I8 = ir.IntType(8)
_EXTRA_BYTES = 8  # of a group beside its integers
_BIT = ir.IntType(1)


def row_bytes(n_groups: int) -> int:
    """Bytes of a row of integers with its scales and corrections."""
    return n_groups * (GROUP + _EXTRA_BYTES)


def write_quantise(code: VectorCode, is_bf16: bool) -> None:
    """Write the code that makes integers of rows. Words: rows; address of x, numbers from one row of it to the next, numbers of
    a row; address of the result, [rows, row_bytes]."""
    b, n_in = code.b, code.argument(N_IN)
    n_groups = b.sdiv(code.add(n_in, GROUP - 1), I64(GROUP))
    with code.each_unit(code.argument(N_UNITS)) as row:
        x = code.at(code.pointer(X), code.mul(row, code.argument(X_STRIDE)), I16 if is_bf16 else F32)
        out = code.at(code.pointer(QUANTISED), code.mul(row, code.mul(n_groups, row_bytes(1))), I8)
        scales = code.at(out, code.mul(n_groups, GROUP), I8)
        corrections = code.at(scales, n_groups, F32)
        with code.loop(0, n_groups) as group:
            first = code.mul(group, GROUP)
            _quantise_group(code, is_bf16, x, first, b.sub(n_in, first), (out, scales, corrections), group)


def _quantise_group(
    code: VectorCode, is_bf16: bool, x: Value, first: Value, n_left: Value, places: tuple[Value, Value, Value], group: Value
) -> None:
    """Numbers `first` up to first + GROUP of a row, of which n_left exist."""
    b, words = code.b, ir.VectorType(I32, code.lanes)
    out, scales, corrections = places
    parts = range(0, GROUP, code.lanes)
    numbers = [load_part(code, x, code.add(first, part), b.sub(n_left, I64(part)), is_bf16) for part in parts]
    greatest = nothing = code.constant(0.0)
    for part in numbers:
        greatest = code.max(code.unary("llvm.fabs", part), greatest)
        nothing = code.fma(part, code.constant(0.0), nothing)  # 0, or not a number if an input is none; then the scale is none
    scale = b.fmul(code.fold(greatest, code.max), code.constant(1 / GREATEST))
    scale = b.fadd(scale, code.fold(nothing, b.fadd))
    inverse = b.fdiv(code.constant(1.0), scale)
    inverse = b.select(b.fcmp_ordered(">", scale, code.constant(LEAST_SCALE)), inverse, code.constant(0.0))
    total = ir.Constant(words, [I32(0)] * code.lanes)
    for part, number in zip(parts, numbers, strict=True):
        within = code.min(code.max(b.fmul(number, inverse), code.constant(-GREATEST)), code.constant(GREATEST))
        whole = b.fptosi(code.unary("llvm.roundeven", within), words)
        total = b.add(total, whole)
        b.store(b.trunc(whole, ir.VectorType(I8, code.lanes)), code.at(out, code.add(first, part), I8), align=1)
    b.store(b.extract_element(scale, I32(0)), code.at(scales, group), align=4)
    correction = b.mul(b.extract_element(code.fold(total, b.add), I32(0)), I32(-ZERO))
    b.store(correction, code.at(corrections, group, I32), align=4)


def write_product(code: VectorCode, is_bf16: bool, kind: type[RowsTimesBlock] | None = None) -> None:
    """Write the code of the product. Its argument words, in the order of the names above: number of units; addresses of rows
    [N_ROWS, row_bytes], of the blocks of the weight and of out [N_ROWS, N_OUT]; N_ROWS, N_GROUPS, N_OUT; PASS_ROWS: rows of one
    pass, at most MOST_ROWS; SHARE: rows of one unit, in whole passes. A unit computes one block of SHARE rows. kind: the layout
    of the weight; None: that of `int8_weights`."""
    arguments = (code.argument(word) for word in (N_UNITS, N_ROWS, PASS_ROWS, SHARE))

    def write(block: Value, row: Value, n: int) -> None:
        (kind or RowsTimesBlock)(code, is_bf16, block, row).write(n)

    write_passes(code, Division(*arguments), MOST_ROWS, write)


class RowsTimesBlock:
    """The code for some rows and one block of outputs."""

    group_bytes = GROUP_BYTES  # of a block of the weight

    def __init__(self, code: VectorCode, is_bf16: bool, block: Value, row: Value) -> None:
        self.code, self.is_bf16, self.block, self.row = code, is_bf16, block, row
        self.n_groups, self.n_out = code.argument(N_GROUPS), code.argument(N_OUT)
        self.words = ir.VectorType(I32, code.lanes)
        self.parts = range(0, BLOCK, code.lanes)
        self.row_bytes = code.mul(self.n_groups, row_bytes(1))
        self.rows = code.at(code.pointer(ROWS), code.mul(row, self.row_bytes), I8)
        self.weight = code.at(code.pointer(WEIGHT), code.mul(code.mul(block, self.n_groups), self.group_bytes), I8)

    def write(self, n_rows: int) -> None:
        """Write the code that computes `out` for `n_rows` rows."""
        code, b = self.code, self.code.b
        sums = [[code.variable(code.constant(0.0)) for _ in self.parts] for _ in range(n_rows)]
        rows = [code.at(self.rows, code.mul(self.row_bytes, row), I8) for row in range(n_rows)]
        with code.loop(0, self.n_groups) as group:
            self.add_group(rows, group, code.at(self.weight, code.mul(group, self.group_bytes), I8), sums)
        for row, own_sums in enumerate(sums):
            start = code.mul(code.add(self.row, row), self.n_out)
            for part, place in zip(self.parts, own_sums, strict=True):
                column = code.add(code.mul(self.block, BLOCK), part)
                n_left = b.sub(self.n_out, column)
                store_part(code, code.get(place), code.pointer(OUT), code.add(start, column), n_left, self.is_bf16)

    def add_group(self, rows: list[Value], group: Value, weights: Value, sums: list[list[Value]]) -> None:
        """Add the products of one group to the sums of each row and vector of outputs. rows: where they begin; weights: where
        those of the group begin."""
        code, b = self.code, self.code.b
        totals = self._totals(rows, group, code.at(weights, SCALES_BYTES, I8))
        scales = [code.load(weights, part, is_bf16=True) for part in self.parts]
        for row, own_sums, own_totals in zip(rows, sums, totals, strict=True):
            of_row = self.scale(row, group)
            for place, total, scale in zip(own_sums, own_totals, scales, strict=True):
                exact = b.sitofp(b.load(total, typ=self.words), code.vector)
                code.put(place, code.fma(exact, b.fmul(scale, of_row), code.get(place)))

    def scale(self, row: Value, group: Value) -> Value:
        """A row's scale of a group, in all lanes."""
        return self.code.load_scalar(self.code.at(row, self.code.mul(self.n_groups, GROUP), I8), group)

    def correction(self, row: Value, group: Value) -> Value:
        """A row's correction for a group, int32 in all lanes."""
        code = self.code
        corrections = code.at(row, code.mul(self.n_groups, GROUP + _EXTRA_BYTES // 2), I8)
        return code.spread(code.b.load(code.at(corrections, group, I32), typ=I32, align=4))

    def inputs(self, row: Value, index: Value) -> Value:
        """The four integers of a row from `index` on, as one word in all lanes."""
        return self.code.spread(self.code.b.load(self.code.at(row, index, I8), typ=I32, align=4))

    def _totals(self, rows: list[Value], group: Value, weights: Value) -> list[list[Value]]:
        """For each row and vector of outputs a variable with the sum of products of one group."""
        code, b = self.code, self.code.b
        totals = []
        for row in rows:
            correction = self.correction(row, group)
            totals.append([code.variable(correction) for _ in self.parts])
        with code.loop(0, GROUP // TOGETHER) as step:
            line = code.at(weights, code.mul(step, BLOCK * TOGETHER), I8)
            vectors = [b.load(code.at(line, part, I32), typ=self.words, align=4) for part in self.parts]
            place = code.add(code.mul(group, GROUP), code.mul(step, TOGETHER))
            for row, own in zip(rows, totals, strict=True):
                x = self.inputs(row, place)
                for total, vector in zip(own, vectors, strict=True):
                    b.store(dot_bytes(code, vector, x, b.load(total, typ=self.words)), total)
        return totals


def dot_bytes(code: VectorCode, a: Value, x: Value, total: Value) -> Value:
    """total + the products of the four bytes in each 32-bit lane of a, unsigned, and of x, signed. All are exact."""
    b, words = code.b, ir.VectorType(I32, code.lanes)
    if code.machine.has_int8_dot:
        dot = code.declare(f"llvm.x86.avx512.vpdpbusd.{32 * code.lanes}", words, [words] * 3)
        return b.call(dot, [total, a, x])
    halves = ir.VectorType(I16, 2 * code.lanes)
    a, x, eight = b.bitcast(a, halves), b.bitcast(x, halves), ir.Constant(halves, [I16(8)] * (2 * code.lanes))
    low = _pair_products(code, b.lshr(b.shl(a, eight), eight), b.ashr(b.shl(x, eight), eight))
    return b.add(b.add(total, low), _pair_products(code, b.lshr(a, eight), b.ashr(x, eight)))


def _pair_products(code: VectorCode, a: Value, x: Value) -> Value:
    """Vectors of 16-bit integers, two in each 32-bit lane -> the sum of the two products. x86 has an instruction for it."""
    b, words, wide = code.b, ir.VectorType(I32, code.lanes), ir.VectorType(I32, 2 * code.lanes)
    products = b.mul(b.sext(a, wide), b.sext(x, wide))
    even, odd = (ir.Constant(words, [I32(2 * lane + side) for lane in range(code.lanes)]) for side in (0, 1))
    return b.add(b.shuffle_vector(products, products, even), b.shuffle_vector(products, products, odd))


def load_part(code: VectorCode, base: Value, index: Value, n_left: Value, is_bf16: bool) -> Value:
    """The first `n_left` of a vector of numbers from `index` on as float32, and zeros in the other lanes."""
    kind = I16 if is_bf16 else F32
    numbers, bits = ir.VectorType(kind, code.lanes), ir.VectorType(_BIT, code.lanes)
    name = f"llvm.masked.load.v{code.lanes}{'i16' if is_bf16 else 'f32'}.p0"
    load = code.declare(name, numbers, [base.type, I32, bits, numbers])
    zeros = ir.Constant(numbers, [kind(0)] * code.lanes)
    found = code.b.call(load, [code.at(base, index, kind), I32(2 if is_bf16 else 4), _mask(code, n_left), zeros])
    if not is_bf16:
        return found
    words = ir.VectorType(I32, code.lanes)
    sixteen = ir.Constant(words, [I32(16)] * code.lanes)
    return code.b.bitcast(code.b.shl(code.b.zext(found, words), sixteen), code.vector)


def store_part(code: VectorCode, value: Value, base: Value, index: Value, n_left: Value, is_bf16: bool) -> None:
    """Write the first `n_left` lanes to consecutive numbers from `index` on."""
    b, kind = code.b, I16 if is_bf16 else F32
    numbers, bits = ir.VectorType(kind, code.lanes), ir.VectorType(_BIT, code.lanes)
    if is_bf16:
        words = ir.VectorType(I32, code.lanes)
        sixteen = ir.Constant(words, [I32(16)] * code.lanes)
        value = b.trunc(b.lshr(b.bitcast(code.rounded_to_bf16(value), words), sixteen), numbers)
    name = f"llvm.masked.store.v{code.lanes}{'i16' if is_bf16 else 'f32'}.p0"
    store = code.declare(name, ir.VoidType(), [numbers, base.type, I32, bits])
    b.call(store, [value, code.at(base, index, kind), I32(2 if is_bf16 else 4), _mask(code, n_left)])


def _mask(code: VectorCode, n_left: Value) -> Value:
    """True in the first `n_left` lanes."""
    lanes = ir.Constant(ir.VectorType(I64, code.lanes), [I64(lane) for lane in range(code.lanes)])
    return code.b.icmp_signed("<", lanes, code.spread(n_left))
