"""Keys and values as 8-bit integers with scales, in vector code: the format of `layers.page_format.quantise_int8`."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from gpu_workers.cpu.kernels import rows
from gpu_workers.cpu.kernels.vector_code import I16, I32, I64, Value, VectorCode
from messages.steps import PAGE_TOKENS

I8 = ir.IntType(8)
SCALE_BYTES = 2
_GREATEST = 127
_LEAST_SCALE = 1e-30  # see `page_format`


def load_bytes(code: VectorCode, base: Value, index: Value) -> Value:
    """A vector of consecutive signed bytes from `index` on, as float32."""
    found = code.b.load(code.at(base, index, I8), typ=ir.VectorType(I8, code.lanes), align=1)
    return code.b.sitofp(code.b.sext(found, ir.VectorType(I32, code.lanes)), code.vector)


def write_rope_and_quantise(code: VectorCode, is_bf16: bool) -> None:
    """As `rows.write_rope_and_store`, with the same words, for pages of 8-bit integers: numbers of a page are bytes. Keys are
    rotated and quantised in float32, without being rounded between."""
    b, n_kv_heads, head_dim = code.b, code.argument(rows.N_KV_HEADS), code.argument(rows.HEAD_DIM)
    half = b.sdiv(head_dim, I64(2))
    with code.each_unit(code.argument(rows.N_UNITS)) as token:
        cos_sin = rows.rotate_queries(code, is_bf16, token)
        new = rows.new_vectors(code, is_bf16, token)
        scales = code.add(new.page, code.mul(code.mul(n_kv_heads, head_dim), PAGE_TOKENS))  # where the page's scales begin
        with code.loop(0, n_kv_heads) as head:
            start = code.mul(head, head_dim)
            numbers = code.add(new.page, code.mul(code.add(code.mul(new.offset, n_kv_heads), head), head_dim))
            scale = code.add(scales, code.mul(code.add(code.mul(head, PAGE_TOKENS), new.offset), SCALE_BYTES))

            def key(i: Value) -> tuple[Value, Value]:
                return rows.rotated(code, is_bf16, new.k, code.add(start, i), i, cos_sin)

            def value(i: Value) -> tuple[Value, Value]:
                first = code.add(start, i)
                return code.load(new.v, first, is_bf16), code.load(new.v, code.add(first, half), is_bf16)

            for pages, halves in ((rows.K_PAGES, key), (rows.V_PAGES, value)):
                base = code.pointer(pages)
                _quantise(code, half, halves, code.at(base, numbers, I8), code.at(base, scale, I8))


def _quantise(
    code: VectorCode, half: Value, halves: Callable[[Value], tuple[Value, Value]], numbers: Value, scale_address: Value
) -> None:
    """Write one vector and its scale. halves: a vector of each half of the numbers, from an index on."""
    b = code.b
    greatest = code.variable(code.constant(0.0))
    with code.loop(0, half, code.lanes) as i:
        for part in halves(i):
            code.put(greatest, code.max(code.unary("llvm.fabs", part), code.get(greatest)))
    exact = b.fmul(code.fold(code.get(greatest), code.max), code.constant(1 / _GREATEST))
    scale = code.rounded_to_bf16(exact)
    words = b.bitcast(scale, ir.VectorType(I32, code.lanes))
    b.store(b.trunc(b.lshr(b.extract_element(words, I32(0)), I32(16)), I16), scale_address, align=2)
    inverse = b.fdiv(code.constant(1.0), scale)
    is_usable = b.fcmp_ordered(">", scale, code.constant(_LEAST_SCALE))
    inverse = b.select(is_usable, inverse, code.constant(0.0))
    with code.loop(0, half, code.lanes) as i:
        for index, part in zip((i, code.add(i, half)), halves(i), strict=True):
            within = code.min(code.max(b.fmul(part, inverse), code.constant(-_GREATEST)), code.constant(_GREATEST))
            whole = b.fptosi(code.unary("llvm.roundeven", within), ir.VectorType(I32, code.lanes))
            b.store(b.trunc(whole, ir.VectorType(I8, code.lanes)), code.at(numbers, index, I8), align=1)
