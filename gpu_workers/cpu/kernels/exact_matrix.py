"""The product of float32 rows with a weight whose numbers are stored as integers; layouts: `exact_weights`.

An integer becomes the float32 number that it stands for in registers, rounded as the file's own definition rounds it, and is
multiplied with the input as it is. Products are added up in the order of the inputs, as `matrix` does it. So the result has
the same bits as that of `matrix` with the same weight in float32, but a seventh of its bytes is read.

Few rows take the numbers from registers. For more rows each thread first writes some inputs of a block, as numbers, to a tile
on its stack, which all of its rows then read; the sums of a row wait in the result meanwhile.

A pass computes a strip of a block: as many outputs as leave registers for the sums of several rows. With 32 registers of 16
numbers (AVX-512) that is the whole block, with 16 registers of 8 numbers (AVX2) a quarter of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from gpu_workers.cpu.kernels.exact_weights import BLOCK, GROUP, NUMBERS_BYTES, ZERO_OF_8_BITS, Bits, group_bytes
from gpu_workers.cpu.kernels.int8_matrix import load_part, store_part
from gpu_workers.cpu.kernels.machine import Machine
from gpu_workers.cpu.kernels.passes import Division, write_passes, write_rows, write_units
from gpu_workers.cpu.kernels.vector_code import F32, FIRST_WORD, I32, I64, POINTER, Value, VectorCode

N_UNITS, X, WEIGHT, OUT, N_ROWS, N_GROUPS, N_OUT, PASS_ROWS, SHARE, HAS_4_BITS = range(FIRST_WORD, FIRST_WORD + 10)
MOST_DIRECT_ROWS = 4  # in one pass that takes numbers from registers
MOST_TILE_ROWS = 6  # in one pass over a tile; the sums of so many rows fill the registers
_TILE_GROUPS = 4  # 32 KiB of numbers, which fit the first cache of a core
_TILE_INPUTS = _TILE_GROUPS * GROUP
_I8, _HALF = ir.IntType(8), ir.HalfType()


def strip_outputs(machine: Machine, n_rows: int = MOST_DIRECT_ROWS) -> int:
    """Outputs of a block that a pass of so many rows computes together. The sum of an output waits for the one before, so one
    row alone takes more outputs, to have enough to do meanwhile."""
    n_vectors = 4 if machine.registers >= 32 or n_rows == 1 else 2
    return min(BLOCK, machine.lanes * n_vectors)


@dataclass(frozen=True)
class _Strip:
    """Some outputs of a block."""

    first: Value  # counted in the block
    parts: range  # the first output of each vector, counted in the strip


def write_direct(code: VectorCode, bits: Bits) -> None:
    """Write the code of the product of few rows. Its argument words, in the order of the names above: number of units;
    addresses of x [N_ROWS, N_GROUPS * GROUP], of the blocks of the weight and of out [N_ROWS, N_OUT], float32; these sizes;
    PASS_ROWS: rows of one pass, at most MOST_DIRECT_ROWS; SHARE: rows of one unit, in whole passes; HAS_4_BITS is not read."""

    def write(block: Value, row: Value, n: int) -> None:
        with _strips(code, strip_outputs(code.machine, n)) as strip:
            rows = _Rows(code, block, strip, (row, n))
            sums = [[code.variable(code.constant(0.0)) for _ in strip.parts] for _ in range(n)]
            weight = _Weight(code, bits, block, strip)
            with code.loop(0, code.argument(N_GROUPS)) as group, weight.words(group) as (first, words):
                for place in range(weight.per_word):
                    rows.add(code.add(code.add(code.mul(group, GROUP), first), place), weight.numbers(words, place), sums)
            rows.store(sums)

    write_passes(code, _division(code), MOST_DIRECT_ROWS, write)


def write_tiled(code: VectorCode) -> None:
    """Write the code of the product of many rows. Argument words as for `write_direct`; PASS_ROWS: at most MOST_TILE_ROWS;
    HAS_4_BITS: 1 for integers of 4 bits, 0 for 8."""
    b, division, n_groups, width = code.b, _division(code), code.argument(N_GROUPS), strip_outputs(code.machine)
    kind = ir.ArrayType(code.vector, _TILE_INPUTS * BLOCK // code.lanes)
    tile = b.inttoptr(b.ptrtoint(code.variable(ir.Constant(kind, ir.Undefined)), I64), POINTER)

    def write_unit(block: Value, first_row: Value, end_row: Value) -> None:
        with code.loop(0, n_groups, _TILE_GROUPS) as first:
            end = code.least(code.add(first, _TILE_GROUPS), n_groups)
            with b.if_else(b.icmp_signed("!=", code.argument(HAS_4_BITS), I64(0))) as (with_4_bits, with_8_bits):
                with with_4_bits:
                    _fill(code, 4, block, tile, (first, end))
                with with_8_bits:
                    _fill(code, 8, block, tile, (first, end))
            n_inputs = code.mul(b.sub(end, first), GROUP)

            def write_pass(row: Value, n: int) -> None:
                with _strips(code, width) as strip:
                    rows = _Rows(code, block, strip, (row, n))
                    sums = rows.load(is_first=b.icmp_signed("==", first, I64(0)))
                    with code.loop(0, n_inputs) as i:
                        line = _tile_line(code, strip, i)
                        vectors = [code.load(tile, code.add(line, part)) for part in strip.parts]
                        rows.add(code.add(code.mul(first, GROUP), i), vectors, sums)
                    rows.store(sums)

            write_rows(code, division, (first_row, end_row), MOST_TILE_ROWS, write_pass)

    write_units(code, division, write_unit)


def _division(code: VectorCode) -> Division:
    return Division(*(code.argument(word) for word in (N_UNITS, N_ROWS, PASS_ROWS, SHARE)))


@contextmanager
def _strips(code: VectorCode, width: int) -> Iterator[_Strip]:
    """A loop over the strips of a block, of `width` outputs each. No loop where there is one strip."""
    parts = range(0, width, code.lanes)
    if width == BLOCK:
        yield _Strip(I64(0), parts)
        return
    with code.loop(0, BLOCK, width) as first:
        yield _Strip(first, parts)


def _tile_line(code: VectorCode, strip: _Strip, i: Value) -> Value:
    """Where the numbers of a strip for input `i` of the tile begin. The tile: float32 [strips, _TILE_INPUTS, outputs]."""
    return code.add(code.mul(strip.first, _TILE_INPUTS), code.mul(i, strip_outputs(code.machine)))


def _fill(code: VectorCode, bits: Bits, block: Value, tile: Value, groups: tuple[Value, Value]) -> None:
    """Write the numbers of these groups of a block (the first one and the end) to the tile."""
    first, end = groups
    with _strips(code, strip_outputs(code.machine)) as strip, code.loop(first, end) as group:
        weight, input_ = _Weight(code, bits, block, strip), code.mul(code.b.sub(group, first), GROUP)
        with weight.words(group) as (start, words), code.loop(0, weight.per_word) as place:
            line = _tile_line(code, strip, code.add(code.add(input_, start), place))
            for part, vector in zip(strip.parts, weight.numbers(words, place), strict=True):
                code.store(vector, tile, code.add(line, part))


class _Rows:
    """The code for some rows of x (the first one, and how many) and the outputs of one strip."""

    def __init__(self, code: VectorCode, block: Value, strip: _Strip, rows: tuple[Value, int]) -> None:
        row, n = rows
        self._code, self._n_in = code, code.mul(code.argument(N_GROUPS), GROUP)
        self._xs = [code.at(code.pointer(X), code.mul(code.add(row, i), self._n_in)) for i in range(n)]
        n_out, self._column, self._parts = code.argument(N_OUT), code.add(code.mul(block, BLOCK), strip.first), strip.parts
        self._outs = [code.at(code.pointer(OUT), code.mul(code.add(row, i), n_out)) for i in range(n)]
        self._n_left = code.b.sub(n_out, self._column)

    def add(self, i: Value, vectors: list[Value], sums: list[list[Value]]) -> None:
        """Add the products of input `i` of each row with the numbers of the strip for it."""
        code = self._code
        for x, own in zip(self._xs, sums, strict=True):
            number = code.load_scalar(x, i)
            for place, vector in zip(own, vectors, strict=True):
                code.put(place, code.fma(number, vector, code.get(place)))

    def load(self, is_first: Value) -> list[list[Value]]:
        """Variables with the sums so far: zeros if is_first, else those in the result."""
        code, b = self._code, self._code.b
        return [
            [code.variable(b.select(is_first, code.constant(0.0), found)) for found in self._found(out)] for out in self._outs
        ]

    def _found(self, out: Value) -> Iterator[Value]:
        for part in self._parts:
            n_left = self._code.b.sub(self._n_left, I64(part))
            yield load_part(self._code, out, self._code.add(self._column, part), n_left, is_bf16=False)

    def store(self, sums: list[list[Value]]) -> None:
        """Write the sums to the result."""
        code, b = self._code, self._code.b
        for out, own in zip(self._outs, sums, strict=True):
            for part, place in zip(self._parts, own, strict=True):
                n_left = b.sub(self._n_left, I64(part))
                store_part(code, code.get(place), out, code.add(self._column, part), n_left, is_bf16=False)


class _Weight:
    """The code that makes numbers of the integers of one strip of a block."""

    def __init__(self, code: VectorCode, bits: Bits, block: Value, strip: _Strip) -> None:
        self._code, self._bits, self._strip = code, bits, strip
        self.per_word = 32 // bits  # inputs
        self._words = ir.VectorType(I32, code.lanes)
        self._group_bytes = group_bytes(bits)
        self._start = code.at(code.pointer(WEIGHT), code.mul(code.mul(block, code.argument(N_GROUPS)), self._group_bytes), _I8)
        self._scales: tuple[list[Value], list[Value]] = ([], [])

    @contextmanager
    def words(self, group: Value) -> Iterator[tuple[Value, list[Value]]]:
        """A loop over the words of a group: the first input of each, counted in the group, and the words of its outputs."""
        code, b = self._code, self._code.b
        start = code.at(self._start, code.mul(group, self._group_bytes), _I8)
        self._scales = self._load_scales(start)
        integers = code.at(start, NUMBERS_BYTES[self._bits], _I8)
        with code.loop(0, GROUP // self.per_word) as step:
            line = code.at(integers, code.add(code.mul(step, BLOCK), self._strip.first), I32)
            found = [b.load(code.at(line, part, I32), typ=self._words, align=4) for part in self._strip.parts]
            yield code.mul(step, self.per_word), found

    def numbers(self, words: list[Value], place: Value) -> list[Value]:
        """The numbers of the strip's outputs for input `place` of these words (a constant or a value), vectors of float32."""
        code, shift = self._code, self._code.spread(self._code.b.trunc(self._shift(place), I32))
        integers = [self._integer(code.b.lshr(word, shift)) for word in words]
        return [code.fma(*numbers) for numbers in zip(integers, *self._scales, strict=True)]

    def _shift(self, place: Value) -> Value:
        """Bits before the integer of an input in its word. A byte of 4-bit integers has input i in its low half, and input
        i + 4 in its high half."""
        code, b = self._code, self._code.b
        if self._bits == 8:
            return code.mul(place, 8)
        return code.add(code.mul(b.and_(code.int(place), I64(3)), 8), code.mul(b.lshr(code.int(place), I64(2)), 4))

    def _load_scales(self, start: Value) -> tuple[list[Value], list[Value]]:
        start = self._code.at(start, self._strip.first, _HALF)
        steps = self._halves(start)
        if self._bits == 4:
            return steps, self._halves(self._code.at(start, BLOCK, _HALF))
        zero = self._code.constant(-ZERO_OF_8_BITS)
        return steps, [self._code.b.fmul(step, zero) for step in steps]

    def _halves(self, base: Value) -> list[Value]:
        code, halves = self._code, ir.VectorType(_HALF, self._code.lanes)
        return [
            code.b.fpext(code.b.load(code.at(base, part, _HALF), typ=halves, align=2), code.vector)
            for part in self._strip.parts
        ]

    def _integer(self, words: Value) -> Value:
        """The integer in the lowest bits of each lane, as float32."""
        code, b = self._code, self._code.b
        if self._bits == 4 and code.machine.is_x86 and code.lanes == 16:
            table = ir.Constant(code.vector, [F32(float(number)) for number in range(16)])
            look_up = code.declare("llvm.x86.avx512.permvar.sf.512", code.vector, [code.vector, self._words])
            return b.call(look_up, [table, words])  # reads the low four bits of each lane
        return b.sitofp(b.and_(words, self._all((1 << self._bits) - 1)), code.vector)

    def _all(self, number: int) -> Value:
        return ir.Constant(self._words, [I32(number)] * self._code.lanes)
