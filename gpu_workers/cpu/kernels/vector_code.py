"""A small language for kernels over llvmlite: 64-bit integers, vectors of float32, loops; memory as float32 or bfloat16.

A kernel is one function of one pointer, to an array of 64-bit words: its arguments, addresses among them. Several threads call
it with the same words; the first ones are counters, from which threads draw their work (`each_unit`) and their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from gpu_workers.cpu.kernels.machine import Machine

I64, I32, I16, F32 = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.FloatType()
POINTER = ir.PointerType()
FUNCTION = ir.FunctionType(ir.VoidType(), [POINTER])
COUNTERS = COUNTER, THREADS = range(2)  # 0 when a kernel is called
RUN_UNITS = 8  # a thread draws so many units at once; no word that is only read shares the cache line of the counters
FIRST_WORD = 9  # of a kernel's own words
_EXP2 = [0.6931471805599453**k for k in range(8)]
_FACTORIALS = (1, 1, 2, 6, 24, 120, 720, 5040)

Value = Any  # an llvmlite value; the library has no types


class _BFloat16(ir.Type):
    """A type of LLVM that the library does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


class VectorCode:
    """The body of one kernel while it is being written."""

    def __init__(self, module: ir.Module, name: str, machine: Machine) -> None:
        self._module, self.machine, self.lanes = module, machine, machine.lanes
        self._function = ir.Function(module, FUNCTION, name)
        self._function.args[0].add_attribute("noalias")
        self._entry = ir.IRBuilder(self._function.append_basic_block())
        self.b = ir.IRBuilder(self._function.append_basic_block())
        self._start = self.b.block
        self.vector = ir.VectorType(F32, self.lanes)
        self._words = ir.VectorType(I32, self.lanes)

    def finish(self) -> None:
        """The end of the kernel."""
        self.b.ret_void()
        self._entry.branch(self._start)

    # -- arguments, integers, loops

    def argument(self, index: int) -> Value:
        """Argument word `index` as an integer."""
        return self.b.load(self._word(index), typ=I64)

    def pointer(self, index: int) -> Value:
        """Argument word `index` as an address."""
        return self.b.inttoptr(self.argument(index), POINTER)

    def _word(self, index: int) -> Value:
        return self.b.gep(self._function.args[0], [I64(index)], source_etype=I64)

    def draw(self, index: int) -> Value:
        """The next number of the counter in argument word `index`; no other thread gets the same."""
        return self.b.atomic_rmw("add", self._word(index), I64(1), "monotonic")

    def int(self, value: Value) -> Value:
        """A constant, or a value as it is."""
        return I64(value) if isinstance(value, int) else value

    def add(self, a: Value, b: Value) -> Value:
        """a + b, integers."""
        return self.b.add(self.int(a), self.int(b))

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, integers."""
        return self.b.mul(self.int(a), self.int(b))

    def least(self, a: Value, b: Value) -> Value:
        """The smaller of two integers."""
        a, b = self.int(a), self.int(b)
        return self.b.select(self.b.icmp_signed("<", a, b), a, b)

    @contextmanager
    def loop(self, start: Value, stop: Value, step: Value = 1) -> Iterator[Value]:
        """for i in range(start, stop, step), step above 0."""
        b = self.b
        head, body, end = (b.append_basic_block() for _ in range(3))
        before = b.block
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(self.int(start), before)
        b.cbranch(b.icmp_signed("<", i, self.int(stop)), body, end)
        b.position_at_end(body)
        yield i
        i.add_incoming(self.add(i, step), b.block)
        b.branch(head)
        b.position_at_end(end)

    @contextmanager
    def each_unit(self, n_units: Value) -> Iterator[Value]:
        """Work drawn until n_units are taken, by all threads together, in runs of as many units as the words say."""
        b, run_units = self.b, self.argument(RUN_UNITS)
        head, body, end = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        first = self.mul(self.draw(COUNTER), run_units)
        b.cbranch(b.icmp_signed("<", first, n_units), body, end)
        b.position_at_end(body)
        with self.loop(first, self.least(self.add(first, run_units), n_units)) as unit:
            yield unit
        b.branch(head)
        b.position_at_end(end)

    # -- variables and memory

    def variable(self, value: Value) -> Value:
        """A vector that changes; it becomes a register."""
        place = self._entry.alloca(value.type)
        self.b.store(value, place)
        return place

    def get(self, place: Value) -> Value:
        """The vector of a variable."""
        return self.b.load(place, typ=self.vector)

    def put(self, place: Value, value: Value) -> None:
        """Change a variable."""
        self.b.store(value, place)

    def load_int(self, base: Value, index: Value, bits: int) -> Value:
        """Entry `index` of an array of integers of so many bits."""
        kind = ir.IntType(bits)
        value = self.b.load(self.b.gep(base, [self.int(index)], source_etype=kind), typ=kind)
        return value if bits == 64 else self.b.sext(value, I64)

    def at(self, base: Value, index: Value, kind: Any = F32) -> Value:
        """The address of entry `index` of an array."""
        return self.b.gep(base, [self.int(index)], source_etype=kind)

    def load(self, base: Value, index: Value, is_bf16: bool = False) -> Value:
        """A vector of consecutive entries from `index` on, as float32."""
        if not is_bf16:
            return self.b.load(self.at(base, index), typ=self.vector, align=4)
        halves = self.b.load(self.at(base, index, I16), typ=ir.VectorType(I16, self.lanes), align=2)
        return self.b.bitcast(self.b.shl(self.b.zext(halves, self._words), self._word_of(16)), self.vector)

    def store(self, value: Value, base: Value, index: Value, is_bf16: bool = False) -> None:
        """Write a vector to consecutive entries; bfloat16 is rounded to nearest, ties to even."""
        if not is_bf16:
            self.b.store(value, self.at(base, index), align=4)
            return
        rounded = self._rounded_halves(value)
        self.b.store(self.b.trunc(rounded, ir.VectorType(I16, self.lanes)), self.at(base, index, I16), align=2)

    def rounded_to_bf16(self, value: Value) -> Value:
        """float32 with the precision of bfloat16."""
        return self.b.bitcast(self.b.shl(self._rounded_halves(value), self._word_of(16)), self.vector)

    def _rounded_halves(self, value: Value) -> Value:
        """The bits of bfloat16 in the low halves of words."""
        words = self.b.bitcast(value, self._words)
        odd = self.b.and_(self.b.lshr(words, self._word_of(16)), self._word_of(1))
        return self.b.lshr(self.b.add(self.b.add(words, self._word_of(0x7FFF)), odd), self._word_of(16))

    def fetch(self, address: Value) -> None:
        """Bring a cache line nearer."""
        prefetch = self.declare("llvm.prefetch.p0", ir.VoidType(), [POINTER, I32, I32, I32])
        self.b.call(prefetch, [address, I32(0), I32(3), I32(1)])  # to read, into all levels, data

    def pause(self) -> None:
        """Tell the processor that this thread waits for another."""
        if self.machine.is_x86:
            self.b.call(self.declare("llvm.x86.sse2.pause", ir.VoidType(), []), [])
        else:
            self.b.call(self.declare("llvm.aarch64.hint", ir.VoidType(), [I32]), [I32(1)])

    def load_scalar(self, base: Value, index: Value) -> Value:
        """One float32 in all lanes."""
        return self.spread(self.b.load(self.at(base, index), typ=F32, align=4))

    def float_argument(self, index: int) -> Value:
        """The float32 whose bits are in argument word `index` (see `float_bits`), in all lanes."""
        return self.spread(self.b.bitcast(self.b.trunc(self.argument(index), I32), F32))

    # -- vectors

    def constant(self, value: float) -> Value:
        """The same float32 in all lanes."""
        return ir.Constant(self.vector, [F32(struct.unpack("f", struct.pack("f", value))[0])] * self.lanes)

    def _word_of(self, value: int) -> Value:
        return ir.Constant(self._words, [I32(value)] * self.lanes)

    def spread(self, scalar: Value) -> Value:
        """One float32 in all lanes."""
        kind = ir.VectorType(scalar.type, self.lanes)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(one, one, ir.Constant(self._words, [I32(0)] * self.lanes))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return self.b.call(self._intrinsic("llvm.fma", 3), [a, b, c])

    def dot_pairs(self, a: Value, b: Value, total: Value) -> Value:
        """total + the products of two bfloat16 in each 32-bit lane of a and b; only where `has_bf16_dot`, with 16 lanes."""
        pairs = ir.VectorType(_BFloat16(), 2 * self.lanes)
        dot = self.declare("llvm.x86.avx512bf16.dpbf16ps.512", self.vector, [self.vector, pairs, pairs])
        return self.b.call(dot, [total, self.b.bitcast(a, pairs), self.b.bitcast(b, pairs)])

    def paired(self, first: Value, second: Value) -> Value:
        """Two vectors of bfloat16 precision -> their numbers in order, two in a lane, as `dot_pairs` takes them."""
        halves = ir.VectorType(I16, self.lanes)
        low, high = (
            self.b.trunc(self.b.lshr(self.b.bitcast(x, self._words), self._word_of(16)), halves) for x in (first, second)
        )
        order = ir.Constant(ir.VectorType(I32, 2 * self.lanes), [I32(lane) for lane in range(2 * self.lanes)])
        return self.b.bitcast(self.b.shuffle_vector(low, high, order), self.vector)

    def unary(self, name: str, a: Value) -> Value:
        """An LLVM intrinsic of one vector: "llvm.sqrt", "llvm.roundeven", "llvm.fabs"."""
        return self.b.call(self._intrinsic(name, 1), [a])

    def max(self, a: Value, b: Value) -> Value:
        """The greater of each lane."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def min(self, a: Value, b: Value) -> Value:
        """The smaller of each lane."""
        return self.b.select(self.b.fcmp_ordered("<", a, b), a, b)

    def first_lanes(self, value: Value, count: Value, otherwise: Value) -> Value:
        """value in the first `count` lanes (any integer), otherwise in the rest."""
        lanes = ir.Constant(ir.VectorType(I64, self.lanes), [I64(lane) for lane in range(self.lanes)])
        return self.b.select(self.b.icmp_signed("<", lanes, self.spread(count)), value, otherwise)

    def exp2(self, x: Value) -> Value:
        """2 ** x, to about two units in the last place; below -126 the value at -126."""
        x = self.min(self.max(x, self.constant(-126.0)), self.constant(127.0))
        whole = self.unary("llvm.roundeven", x)
        part = self.b.fsub(x, whole)
        power = self.constant(_EXP2[7] / _FACTORIALS[7])
        for k in range(6, -1, -1):
            power = self.fma(power, part, self.constant(_EXP2[k] / _FACTORIALS[k]))
        shift = self.b.shl(self.b.fptosi(whole, self._words), self._word_of(23))
        return self.b.bitcast(self.b.add(self.b.bitcast(power, self._words), shift), self.vector)

    def fold(self, value: Value, join: Callable[[Value, Value], Value]) -> Value:
        """All lanes joined (a sum, a maximum), in all lanes."""
        width = self.lanes // 2
        while width:
            turned = [I32(lane ^ width) for lane in range(self.lanes)]
            value = join(value, self.b.shuffle_vector(value, value, ir.Constant(self._words, turned)))
            width //= 2
        return value

    def sums_of(self, vectors: Sequence[Value]) -> Value:
        """The sums of as many vectors as there are lanes: lane i is the sum over all lanes of vector i."""
        width = 1  # lane l of each value holds a part of the sum of its vector l % width
        values = list(vectors)
        while len(values) > 1:
            values = [self._merge(a, b, width) for a, b in zip(values[::2], values[1::2], strict=True)]
            width *= 2
        return values[0]

    def _merge(self, a: Value, b: Value, width: int) -> Value:
        masks: tuple[list[ir.Constant], list[ir.Constant]] = ([], [])
        for block in range(0, self.lanes, 2 * width):
            for side, mask in enumerate(masks):
                first = block + side * width
                mask += [I32(lane) for lane in range(first, first + width)]
                mask += [I32(self.lanes + lane) for lane in range(first, first + width)]
        first_half, second_half = (self.b.shuffle_vector(a, b, ir.Constant(self._words, mask)) for mask in masks)
        return self.b.fadd(first_half, second_half)

    def _intrinsic(self, name: str, n_arguments: int) -> Value:
        return self.declare(f"{name}.v{self.lanes}f32", self.vector, [self.vector] * n_arguments)

    def declare(self, name: str, result: Any, arguments: list[Any]) -> Value:
        """A function of LLVM or of the processor by its full name."""
        known = self._module.globals.get(name)
        return known or ir.Function(self._module, ir.FunctionType(result, arguments), name)


def float_bits(value: float) -> int:
    """A float32 as an argument word; see `VectorCode.float_argument`."""
    return struct.unpack("i", struct.pack("f", value))[0]
