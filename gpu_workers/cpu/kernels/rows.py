"""Kernels that treat each row alone: norms, rotation and storing of keys and values, the gate of the feed-forward, lookup of
embeddings, bias, argmax.

Every function is a kernel in vector code; the names before it number its argument words. All arithmetic is in float32, and what
is stored is rounded once. Widths are multiples of the vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from gpu_workers.cpu.kernels.vector_code import F32, FIRST_WORD, I16, I32, I64, Value, VectorCode
from messages.steps import PAGE_TOKENS

N_UNITS = FIRST_WORD  # of all of them
X, WEIGHT, OUT, WIDTH, HEADS, STRIDE, EPS, SHARE, RESIDUAL = range(N_UNITS + 1, N_UNITS + 10)
Q, K, V, Q_STRIDE, K_STRIDE, V_STRIDE, N_HEADS, N_KV_HEADS, HEAD_DIM = range(N_UNITS + 1, N_UNITS + 10)
POSITIONS, COS_SIN, SLOTS, K_PAGES, V_PAGES, PAGE_STRIDE, ROTATED = range(N_UNITS + 10, N_UNITS + 17)
GATE_UP, GATED, N_GATED = range(N_UNITS + 1, N_UNITS + 4)
TABLE, IDS, TAKEN, TAKEN_WIDTH = range(N_UNITS + 1, N_UNITS + 5)
SUMS, BIAS, SUMS_WIDTH = range(N_UNITS + 1, N_UNITS + 4)
LOGITS, CHOSEN, VOCABULARY = range(N_UNITS + 1, N_UNITS + 4)
_LOG2_E = 1.4426950408889634


def write_norm(code: VectorCode, is_bf16: bool, has_residual: bool) -> None:
    """Words: rows; addresses of x, weight [WIDTH] and out [rows, WIDTH], contiguous; WIDTH; row i of x is part i % HEADS of
    the stretch at (i / HEADS) * STRIDE; bits of eps and of 1 / WIDTH. With a residual [rows, WIDTH] x is added to it first."""
    b, kind = code.b, I16 if is_bf16 else F32
    width = code.argument(WIDTH)
    with code.each_unit(code.argument(N_UNITS)) as row:
        outer, inner = b.sdiv(row, code.argument(HEADS)), b.srem(row, code.argument(HEADS))
        start = code.add(code.mul(outer, code.argument(STRIDE)), code.mul(inner, width))
        x = code.at(code.pointer(X), start, kind)
        residual = code.at(code.pointer(RESIDUAL), code.mul(row, width), kind) if has_residual else x
        squares = code.variable(code.constant(0.0))
        with code.loop(0, width, code.lanes) as i:
            value = code.load(x, i, is_bf16)
            if has_residual:
                code.store(b.fadd(value, code.load(residual, i, is_bf16)), residual, i, is_bf16)
                value = code.load(residual, i, is_bf16)  # as rounded
            code.put(squares, code.fma(value, value, code.get(squares)))
        mean = b.fmul(code.fold(code.get(squares), b.fadd), code.float_argument(SHARE))
        root = code.unary("llvm.sqrt", b.fadd(mean, code.float_argument(EPS)))
        scale = b.fdiv(code.constant(1.0), root)
        out = code.at(code.pointer(OUT), code.mul(row, width), kind)
        with code.loop(0, width, code.lanes) as i:
            normed = b.fmul(code.load(residual, i, is_bf16), scale)
            code.store(b.fmul(normed, code.load(code.pointer(WEIGHT), i, is_bf16)), out, i, is_bf16)


def write_rope_and_store(code: VectorCode, is_bf16: bool) -> None:
    """Words: tokens; addresses of q, k, v and how far their tokens lie apart (heads follow each other); sizes; addresses of
    positions [T] int64, cos_sin [max_position, HEAD_DIM] float32, slots [T] int64, the layer's pages of k and v, numbers
    from one page to the next, and the address of rotated [T, N_HEADS, HEAD_DIM]. See `torch_ops.Ops.rope_and_store`."""
    kind = I16 if is_bf16 else F32
    b, n_kv_heads, head_dim = code.b, code.argument(N_KV_HEADS), code.argument(HEAD_DIM)
    kv_width = code.mul(n_kv_heads, head_dim)
    with code.each_unit(code.argument(N_UNITS)) as token:
        cos_sin = rotate_queries(code, is_bf16, token)
        slot = code.load_int(code.pointer(SLOTS), token, 64)
        page, offset = b.sdiv(slot, I64(PAGE_TOKENS)), b.srem(slot, I64(PAGE_TOKENS))
        kv_start = code.add(code.mul(page, code.argument(PAGE_STRIDE)), code.mul(offset, kv_width))
        k = code.at(code.pointer(K), code.mul(token, code.argument(K_STRIDE)), kind)
        _rotate(code, is_bf16, k, code.at(code.pointer(K_PAGES), kv_start, kind), n_kv_heads, cos_sin)
        v = code.at(code.pointer(V), code.mul(token, code.argument(V_STRIDE)), kind)
        v_page = code.at(code.pointer(V_PAGES), kv_start, kind)
        with code.loop(0, kv_width, code.lanes) as i:
            code.store(code.load(v, i, is_bf16), v_page, i, is_bf16)


def rotate_queries(code: VectorCode, is_bf16: bool, token: Value) -> Value:
    """Write the rotated queries of a token. Returns the address of the cosines and sines of its position."""
    kind, width = I16 if is_bf16 else F32, code.mul(code.argument(N_HEADS), code.argument(HEAD_DIM))
    position = code.load_int(code.pointer(POSITIONS), token, 64)
    cos_sin = code.at(code.pointer(COS_SIN), code.mul(position, code.argument(HEAD_DIM)))
    q = code.at(code.pointer(Q), code.mul(token, code.argument(Q_STRIDE)), kind)
    out = code.at(code.pointer(ROTATED), code.mul(token, width), kind)
    _rotate(code, is_bf16, q, out, code.argument(N_HEADS), cos_sin)
    return cos_sin


@dataclass(frozen=True)
class NewVectors:
    """A token's new keys and values in vector code, and the place in pages of bytes where they belong."""

    page: Value  # where its page begins, in bytes
    offset: Value  # of the token in it
    k: Value  # addresses of its keys and values, heads one after the other
    v: Value


def new_vectors(code: VectorCode, is_bf16: bool, token: Value) -> NewVectors:
    """Those of a token, by the words of `write_rope_and_store`."""
    kind = I16 if is_bf16 else F32
    slot = code.load_int(code.pointer(SLOTS), token, 64)
    page = code.mul(code.b.sdiv(slot, I64(PAGE_TOKENS)), code.argument(PAGE_STRIDE))
    offset = code.b.srem(slot, I64(PAGE_TOKENS))
    k = code.at(code.pointer(K), code.mul(token, code.argument(K_STRIDE)), kind)
    v = code.at(code.pointer(V), code.mul(token, code.argument(V_STRIDE)), kind)
    return NewVectors(page, offset, k, v)


def _rotate(code: VectorCode, is_bf16: bool, x: Value, out: Value, n_heads: Value, cos_sin: Value) -> None:
    """x and out: one token's heads, one after the other."""
    b, head_dim = code.b, code.argument(HEAD_DIM)
    half = b.sdiv(head_dim, I64(2))
    with code.loop(0, n_heads) as head, code.loop(0, half, code.lanes) as i:
        at_first = code.add(code.mul(head, head_dim), i)
        first, second = rotated(code, is_bf16, x, at_first, i, cos_sin)
        code.store(first, out, at_first, is_bf16)
        code.store(second, out, code.add(at_first, half), is_bf16)


def rotated(code: VectorCode, is_bf16: bool, x: Value, at_first: Value, i: Value, cos_sin: Value) -> tuple[Value, Value]:
    """A vector of each half of a head, rotated. at_first: the entry of x that is number i of the first half."""
    b, half = code.b, code.b.sdiv(code.argument(HEAD_DIM), I64(2))
    first, second = code.load(x, at_first, is_bf16), code.load(x, code.add(at_first, half), is_bf16)
    cos, sin = code.load(cos_sin, i), code.load(cos_sin, code.add(half, i))
    return b.fsub(b.fmul(first, cos), b.fmul(second, sin)), code.fma(first, sin, b.fmul(second, cos))


def write_silu_mul(code: VectorCode, is_bf16: bool) -> None:
    """Words: rows; addresses of gate_up [rows, 2 n] and of out [rows, n]; n."""
    b, kind = code.b, I16 if is_bf16 else F32
    n = code.argument(N_GATED)
    with code.each_unit(code.argument(N_UNITS)) as row:
        gate = code.at(code.pointer(GATE_UP), code.mul(row, code.mul(n, 2)), kind)
        up = code.at(gate, n, kind)
        out = code.at(code.pointer(GATED), code.mul(row, n), kind)
        with code.loop(0, n, code.lanes) as i:
            x = code.load(gate, i, is_bf16)
            power = code.exp2(b.fmul(x, code.constant(-_LOG2_E)))
            gated = b.fdiv(x, b.fadd(power, code.constant(1.0)))
            code.store(b.fmul(gated, code.load(up, i, is_bf16)), out, i, is_bf16)


def write_take_rows(code: VectorCode, is_bf16: bool) -> None:
    """Words: rows; addresses of a table [any, TAKEN_WIDTH], of ids [rows] int64 and of out [rows, TAKEN_WIDTH]; TAKEN_WIDTH."""
    kind, width = I16 if is_bf16 else F32, code.argument(TAKEN_WIDTH)
    with code.each_unit(code.argument(N_UNITS)) as row:
        taken = code.at(code.pointer(TABLE), code.mul(code.load_int(code.pointer(IDS), row, 64), width), kind)
        out = code.at(code.pointer(TAKEN), code.mul(row, width), kind)
        with code.loop(0, width, code.lanes) as i:
            code.store(code.load(taken, i, is_bf16), out, i, is_bf16)


def write_add_bias(code: VectorCode, is_bf16: bool) -> None:
    """Words: rows; addresses of what is added to [rows, SUMS_WIDTH] and of the bias [SUMS_WIDTH]; SUMS_WIDTH."""
    kind, width = I16 if is_bf16 else F32, code.argument(SUMS_WIDTH)
    with code.each_unit(code.argument(N_UNITS)) as row:
        sums = code.at(code.pointer(SUMS), code.mul(row, width), kind)
        with code.loop(0, width, code.lanes) as i:
            total = code.b.fadd(code.load(sums, i, is_bf16), code.load(code.pointer(BIAS), i, is_bf16))
            code.store(total, sums, i, is_bf16)


def write_argmax(code: VectorCode, is_bf16: bool) -> None:
    """Words: rows; addresses of logits [rows, VOCABULARY] and of ids [rows] int64; VOCABULARY. The lowest id among those with
    the greatest logit; what is not a number is passed over."""
    b, kind = code.b, I16 if is_bf16 else F32
    ids = ir.VectorType(I32, code.lanes)
    width = code.argument(VOCABULARY)
    with code.each_unit(code.argument(N_UNITS)) as row:
        logits = code.at(code.pointer(LOGITS), code.mul(row, width), kind)
        greatest = code.variable(code.constant(float("-inf")))
        first = code.variable(ir.Constant(ids, [I32(0)] * code.lanes))  # where each lane met its greatest: id minus lane
        with code.loop(0, width, code.lanes) as i:
            logit = code.load(logits, i, is_bf16)
            is_greater = b.fcmp_ordered(">", logit, code.get(greatest))
            code.put(greatest, b.select(is_greater, logit, code.get(greatest)))
            code.put(first, b.select(is_greater, code.spread(b.trunc(i, I32)), b.load(first, typ=ids)))
        is_top = b.fcmp_ordered("==", code.get(greatest), code.fold(code.get(greatest), code.max))
        found = b.add(b.load(first, typ=ids), ir.Constant(ids, [I32(lane) for lane in range(code.lanes)]))
        candidates = b.select(is_top, found, ir.Constant(ids, [I32(2**31 - 1)] * code.lanes))
        lowest = code.fold(candidates, lambda x, y: b.select(b.icmp_signed("<", x, y), x, y))
        chosen = b.sext(b.extract_element(lowest, I32(0)), I64)
        b.store(chosen, code.at(code.pointer(CHOSEN), row, I64))
