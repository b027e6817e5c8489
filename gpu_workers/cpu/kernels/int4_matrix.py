"""The product of rows with a weight of 4-bit integers; layout: `int4_weights`.

Rows become 8-bit integers in groups, and the products of a group are added up exactly, as in `int8_matrix`. To the sum of a
group, times both scales, comes the least number of the weight times the sum of the row's integers and its scale. Again the
result for a row depends neither on the rows beside it nor on the processor.
"""

from __future__ import annotations

from llvmlite import ir

from gpu_workers.cpu.kernels.int4_weights import BITS, GREATEST, GROUP_BYTES, NUMBERS_BYTES, STEPS_BYTES
from gpu_workers.cpu.kernels.int8_matrix import I8, RowsTimesBlock, dot_bytes
from gpu_workers.cpu.kernels.int8_weights import BLOCK, GROUP, TOGETHER, ZERO
from gpu_workers.cpu.kernels.vector_code import I32, Value

_LOW_HALVES = GREATEST * 0x01010101


class RowsTimesNibbles(RowsTimesBlock):
    """The code for some rows and one block of outputs."""

    group_bytes = GROUP_BYTES

    def add_group(self, rows: list[Value], group: Value, weights: Value, sums: list[list[Value]]) -> None:
        """Add the products of one group of 4-bit integers; arguments as in `RowsTimesBlock.add_group`."""
        code, b = self.code, self.code.b
        totals = self._nibble_totals(rows, group, code.at(weights, NUMBERS_BYTES, I8))
        steps, least = (self._float16(code.at(weights, first, I8)) for first in (0, STEPS_BYTES))
        for row, own_sums, own_totals in zip(rows, sums, totals, strict=True):
            of_row = self.scale(row, group)
            negative = b.sitofp(self.correction(row, group), code.vector)  # exact, and so is the sum of the row's integers
            row_sum = b.fmul(b.fmul(negative, code.constant(-1 / ZERO)), of_row)
            for place, total, step, lowest in zip(own_sums, own_totals, steps, least, strict=True):
                exact = b.sitofp(b.load(total, typ=self.words), code.vector)
                with_least = code.fma(lowest, row_sum, code.get(place))
                code.put(place, code.fma(exact, b.fmul(step, of_row), with_least))

    def _float16(self, base: Value) -> list[Value]:
        """A number for each output of the block as float32, vectors of them."""
        code, kind = self.code, ir.HalfType()
        halves = ir.VectorType(kind, code.lanes)
        return [code.b.fpext(code.b.load(code.at(base, part, kind), typ=halves, align=2), code.vector) for part in self.parts]

    def _nibble_totals(self, rows: list[Value], group: Value, weights: Value) -> list[list[Value]]:
        """For each row and vector of outputs a variable with the sum of products of one group."""
        code, b = self.code, self.code.b
        nothing, low_halves, shift = (ir.Constant(self.words, [I32(number)] * code.lanes) for number in (0, _LOW_HALVES, BITS))
        totals = [[code.variable(nothing) for _ in self.parts] for _ in rows]
        with code.loop(0, GROUP // (2 * TOGETHER)) as step:
            line = code.at(weights, code.mul(step, BLOCK * TOGETHER), I8)
            bytes_of = [b.load(code.at(line, part, I32), typ=self.words, align=4) for part in self.parts]
            first = code.add(code.mul(group, GROUP), code.mul(step, 2 * TOGETHER))
            for is_high in (False, True):
                vectors = [b.and_(b.lshr(both, shift) if is_high else both, low_halves) for both in bytes_of]
                for row, own in zip(rows, totals, strict=True):
                    x = self.inputs(row, code.add(first, TOGETHER * is_high))
                    for total, vector in zip(own, vectors, strict=True):
                        b.store(dot_bytes(code, vector, x, b.load(total, typ=self.words)), total)
        return totals
