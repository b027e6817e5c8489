"""Finds the integers of a float32 weight and writes them in the layout of `exact_weights`, and says whether they stand for the
same numbers, bit by bit.

The step of a group is found from its least and its greatest number, as GGUF's own quantisation chose it.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from gpu_workers.cpu.kernels.exact_weights import BLOCK, GROUP, NUMBERS_BYTES, ZERO_OF_8_BITS, Bits, group_bytes
from gpu_workers.cpu.kernels.vector_code import FIRST_WORD, I32, I64, Value, VectorCode

N_UNITS, WEIGHT, TARGET, N_GROUPS, N_OUT, LOSSES = range(FIRST_WORD, FIRST_WORD + 6)
_I8, _HALF = ir.IntType(8), ir.HalfType()
_GREATEST = {4: 15, 8: 127}


def write_packing(code: VectorCode, bits: Bits) -> None:
    """Write the code that packs a weight. Argument words, in the order of the names above: blocks of outputs; addresses of the
    weight, float32 [N_OUT, N_GROUPS * GROUP], and of the packed blocks; sizes; the address of LOSSES, int32 for each
    block: 0 if its integers stand for exactly its numbers, else 1."""
    _Packing(code, bits).write()


class _Packing:
    def __init__(self, code: VectorCode, bits: Bits) -> None:
        self._code, self._bits, self._b = code, bits, code.b
        self._words = ir.VectorType(I32, code.lanes)
        self._parts = range(0, GROUP, code.lanes)  # of a group: the first input of each vector
        self._group_bytes = group_bytes(bits)

    def write(self) -> None:
        code, b, n_groups = self._code, self._b, self._code.argument(N_GROUPS)
        with code.each_unit(code.argument(N_UNITS)) as block:
            first = code.mul(block, BLOCK)
            target = code.at(code.pointer(TARGET), code.mul(code.mul(block, n_groups), self._group_bytes), _I8)
            losses = code.variable(self._all(0))
            with code.loop(0, code.least(b.sub(code.argument(N_OUT), first), BLOCK)) as output:
                row = code.mul(code.mul(code.add(first, output), n_groups), GROUP)
                numbers = code.at(code.pointer(WEIGHT), row)
                with code.loop(0, n_groups) as group:
                    start = code.at(target, code.mul(group, self._group_bytes), _I8)
                    self._pack_group(code.at(numbers, code.mul(group, GROUP)), start, output, losses)
            lost = self._joined(b.load(losses, typ=self._words), code.lanes)
            b.store(b.extract_element(lost, I32(0)), code.at(code.pointer(LOSSES), block, I32), align=4)

    def _pack_group(self, numbers: Value, start: Value, output: Value, losses: Value) -> None:
        """One group of one output. losses: a variable whose lanes become 1 where a number is not met exactly."""
        code, b = self._code, self._b
        vectors = [code.load(numbers, part) for part in self._parts]
        step, least = self._scales(vectors)
        b.store(step, code.at(start, output, _HALF), align=2)
        if self._bits == 4:
            b.store(least, code.at(start, code.add(output, BLOCK), _HALF), align=2)
        wide_step, wide_least = (code.spread(b.fpext(number, ir.FloatType())) for number in (step, least))
        inverse = b.fdiv(code.constant(1.0), wide_step)
        inverse = b.select(b.fcmp_ordered(">", wide_step, code.constant(0.0)), inverse, code.constant(0.0))
        integers = code.at(start, NUMBERS_BYTES[self._bits], _I8)
        smallest, greatest = (0 if self._bits == 4 else -_GREATEST[8]), _GREATEST[self._bits]
        for part, vector in zip(self._parts, vectors, strict=True):
            near = code.unary("llvm.roundeven", b.fmul(b.fsub(vector, wide_least), inverse))
            near = code.min(code.max(near, code.constant(smallest)), code.constant(greatest))
            is_equal = b.fcmp_ordered("==", code.fma(near, wide_step, wide_least), vector)
            lost = b.select(is_equal, self._all(0), self._all(1))
            b.store(b.or_(b.load(losses, typ=self._words), lost), losses)
            self._store_integers(near, part, integers, output)

    def _scales(self, vectors: list[Value]) -> tuple[Value, Value]:
        """The step and the least number of a group, halves; with 8 bits the second is 0."""
        code, b = self._code, self._b
        if self._bits == 8:
            greatest = self._over(code.max, [code.unary("llvm.fabs", vector) for vector in vectors])
            return self._half(b.fdiv(greatest, code.constant(_GREATEST[8]))), _HALF(0.0)
        greatest, least = self._over(code.max, vectors), self._over(code.min, vectors)
        return self._half(b.fdiv(b.fsub(greatest, least), code.constant(_GREATEST[4]))), self._half(least)

    def _over(self, join: Callable[[Value, Value], Value], vectors: list[Value]) -> Value:
        joined = vectors[0]
        for vector in vectors[1:]:
            joined = join(joined, vector)
        return self._code.fold(joined, join)

    def _half(self, value: Value) -> Value:
        return self._b.fptrunc(self._b.extract_element(value, I32(0)), _HALF)

    def _store_integers(self, near: Value, part: int, integers: Value, output: Value) -> None:
        """Write the integers of the inputs from `part` on, whole numbers as float32, to their words."""
        code, b = self._code, self._b
        together = 32 // self._bits  # inputs of a word
        whole = b.fptosi(near, self._words)
        if self._bits == 8:
            whole, places = b.add(whole, self._all(ZERO_OF_8_BITS)), [8 * i for i in range(4)]
        else:
            places = [8 * (i % 4) + 4 * (i // 4) for i in range(8)]
        shifts = ir.Constant(self._words, [I32(places[lane % together]) for lane in range(code.lanes)])
        joined = self._joined(b.shl(whole, shifts), together)
        for lane in range(0, code.lanes, together):
            place = code.add(code.mul(I64((part + lane) // together), BLOCK), output)
            b.store(b.extract_element(joined, I32(lane)), code.at(integers, place, I32), align=4)

    def _joined(self, words: Value, together: int) -> Value:
        """The bits of `together` neighbouring lanes in each of them."""
        width = together // 2
        while width:
            turned = ir.Constant(self._words, [I32(lane ^ width) for lane in range(self._code.lanes)])
            words = self._b.or_(words, self._b.shuffle_vector(words, words, turned))
            width //= 2
        return words

    def _all(self, number: int) -> Value:
        return ir.Constant(self._words, [I32(number)] * self._code.lanes)
