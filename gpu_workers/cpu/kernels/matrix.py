"""The product of a few rows with a weight. It reads the weight once, at the speed of memory, in oneDNN's packed layout.

oneDNN uses this layout on processors with AVX-512. The weight is cut into blocks of 64 outputs, or of 32 for bfloat16 on
processors with AMX. A block has one line for each input (float32), or for each pair of inputs (bfloat16). A line holds the
weights of the block's outputs; the two weights of a pair stand next to each other.

    float32   [out / 64, in, 64]          bfloat16  [out / 64, in / 2, 64, 2] or [out / 32, in / 2, 32, 2]
"""

from __future__ import annotations

import torch
from llvmlite import ir

from gpu_workers.cpu.kernels.passes import Division, write_passes
from gpu_workers.cpu.kernels.vector_code import F32, FIRST_WORD, I16, I32, I64, Value, VectorCode

N_UNITS, X, WEIGHT, OUT, N_ROWS, N_IN, N_OUT, GROUP, SHARE = range(FIRST_WORD, FIRST_WORD + 9)
BLOCK = 64  # outputs
BLOCKS = (BLOCK, 32)  # sizes that the kernel can read
MOST_ROWS = 6  # in one pass over a block; the sums of so many rows fill the registers


def together(dtype: torch.dtype) -> int:
    """The number of inputs whose weights stand side by side in the packed layout."""
    return 2 if dtype == torch.bfloat16 else 1


def pack(weight: torch.Tensor, block: int = BLOCK) -> torch.Tensor:
    """weight [out, in], float32 or bfloat16 on the CPU, out a multiple of `block` and in of `together` -> the packed layout,
    contiguous."""
    n_out, n_in = weight.shape
    pair = together(weight.dtype)
    return weight.view(n_out // block, block, n_in // pair, pair).transpose(1, 2).contiguous()


def write_few_rows(code: VectorCode, is_bf16: bool, size: int = BLOCK) -> None:
    """Write the code of the product with a weight in blocks of `size` outputs. Its argument words, in the order of the names
    above: number of units; addresses of x [N_ROWS, N_IN], of the packed weight and of out [N_ROWS, N_OUT]; these three sizes;
    GROUP: rows of one pass, at most MOST_ROWS; SHARE: rows of one unit, in whole passes. A unit computes one block of SHARE
    rows, so there are N_OUT / size * ceil(N_ROWS / SHARE) units."""
    arguments = (code.argument(word) for word in (N_UNITS, N_ROWS, GROUP, SHARE))

    def write(block: Value, row: Value, n: int) -> None:
        _Pass(code, is_bf16, size, block, row).write(n)

    write_passes(code, Division(*arguments), MOST_ROWS, write)


class _Pass:
    """The code for some rows of x and one block of outputs."""

    def __init__(self, code: VectorCode, is_bf16: bool, size: int, block: Value, row: Value) -> None:
        n_in, n_out = code.argument(N_IN), code.argument(N_OUT)
        self.code, self.is_bf16, self.size, self.n_in = code, is_bf16, size, n_in
        self.x = code.at(code.pointer(X), code.mul(row, n_in), I16 if is_bf16 else F32)
        self.weight = code.at(code.pointer(WEIGHT), code.mul(block, code.mul(n_in, size)), I16 if is_bf16 else F32)
        self.first_out = code.add(code.mul(row, n_out), code.mul(block, size))
        self.n_out = n_out
        self.parts = range(0, size, code.lanes)

    def write(self, n_rows: int) -> None:
        """Write the code that computes `out` for `n_rows` rows."""
        code = self.code
        sums = [[code.variable(code.constant(0.0)) for _ in self.parts] for _ in range(n_rows)]
        with code.loop(0, code.b.sdiv(self.n_in, I64(2)) if self.is_bf16 else self.n_in) as step:
            vectors = [code.load(self.weight, code.add(code.mul(step, self.size), part)) for part in self.parts]
            for row in range(n_rows):
                x = self._input(row, step)
                for place, vector in zip(sums[row], vectors, strict=True):
                    code.put(place, self._multiply(x, vector, code.get(place)))
        for row in range(n_rows):
            for part, place in zip(self.parts, sums[row], strict=True):
                index = code.add(self.first_out, code.add(code.mul(self.n_out, row), part))
                code.store(code.get(place), code.pointer(OUT), index, self.is_bf16)

    def _input(self, row: int, step: Value) -> Value:
        """One input, or two as one word, in all lanes."""
        code = self.code
        if not self.is_bf16:
            return code.load_scalar(self.x, code.add(code.mul(self.n_in, row), step))
        pair = code.add(code.mul(self.n_in, row), code.mul(step, 2))
        return code.spread(code.b.load(code.at(self.x, pair, I16), typ=I32, align=2))

    def _multiply(self, x: Value, weight: Value, total: Value) -> Value:
        code, b = self.code, self.code.b
        if not self.is_bf16:
            return code.fma(x, weight, total)
        pairs = b.bitcast(weight, x.type)
        if code.machine.has_bf16_dot:
            return code.dot_pairs(x, pairs, total)
        low, high = ir.Constant(x.type, [I32(16)] * code.lanes), ir.Constant(x.type, [I32(-65536)] * code.lanes)
        even = code.fma(b.bitcast(b.shl(x, low), code.vector), b.bitcast(b.shl(pairs, low), code.vector), total)
        return code.fma(b.bitcast(b.and_(x, high), code.vector), b.bitcast(b.and_(pairs, high), code.vector), even)
