"""Attention of single tokens over pages, read in place: nothing is gathered, and no key of a masked position is used.

One unit of work is one token and one kv head: the query heads that share it are multiplied with each key while it is in
registers. Scores of a unit stand in memory (they fit the nearest cache), then their softmax, then the sum of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_workers.cpu.kernels.pages.int8_pages import I8, SCALE_BYTES, load_bytes
from gpu_workers.cpu.kernels.vector_code import F32, FIRST_WORD, I16, I64, THREADS, Value, VectorCode
from messages.steps import PAGE_TOKENS

N_UNITS, Q, K, V, PAGE_STRIDE, OUT, TABLE, TABLE_WIDTH, PLACES, ROWS, KEYS, SCRATCH, SCRATCH_STRIDE, SCALE = range(
    FIRST_WORD, FIRST_WORD + 14
)
LOG2_E = 1.4426950408889634
_CACHE_LINE = 64


@dataclass(frozen=True)
class AttentionShape:
    """The head counts, head size, dtype and format of pages that the kernel is compiled for."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    is_bf16: bool
    is_int8: bool = False  # the pages: integers with scales, see `layers.page_format`

    @property
    def shared(self) -> int:
        """Query heads on one kv head."""
        return self.n_heads // self.n_kv_heads


def write_paged_attention(code: VectorCode, shape: AttentionShape, kind: type[AttentionUnit] | None = None) -> None:
    """Argument words, in the order of the names above: units, n_kv_heads for each token; addresses of q [T, n_heads, head_dim]
    and of the layer's pages; numbers of a page (int8: bytes) from one to the next; addresses of out, like q, and of the page
    table [R, TABLE_WIDTH] int32; of each token its place in q, its row of the table and its number of keys, int64; scratch of
    SCRATCH_STRIDE float32 for each thread, at least scratches * shared * keys rounded up to pages; SCALE: float bits of the
    factor of q.k times log2(e). kind: `AttentionUnit` (None), or one for other pages."""
    b = code.b
    thread = code.draw(THREADS)
    scratch = code.at(code.pointer(SCRATCH), code.mul(thread, code.argument(SCRATCH_STRIDE)))
    with code.each_unit(code.argument(N_UNITS)) as unit:
        token = b.sdiv(unit, I64(shape.n_kv_heads))
        head = b.srem(unit, I64(shape.n_kv_heads))
        place = code.load_int(code.pointer(PLACES), token, 64)
        n_keys = code.load_int(code.pointer(KEYS), token, 64)
        row = code.load_int(code.pointer(ROWS), token, 64)
        table = code.at(code.pointer(TABLE), code.mul(row, code.argument(TABLE_WIDTH)), F32)  # entries of 4 bytes
        first = code.mul(code.add(code.mul(place, shape.n_heads), code.mul(head, shape.shared)), shape.head_dim)
        unit_code = (kind or AttentionUnit)(code, shape, scratch, table, head, n_keys)
        heads_at_once = max(1, code.machine.registers * 3 // 8 // (shape.head_dim // code.lanes))
        for start in range(0, shape.shared, heads_at_once):
            unit_code.attend(code.add(first, start * shape.head_dim), min(heads_at_once, shape.shared - start))


class AttentionUnit:
    """The code of one token and kv head, for some of its query heads at a time. scratches: scores that it keeps of each key."""

    scratches, stride_word = 1, PAGE_STRIDE

    def __init__(self, code: VectorCode, shape: AttentionShape, scratch: Value, table: Value, head: Value, n: Value) -> None:
        self.code, self.shape, self.scratch, self.table, self.head, self.n_keys = code, shape, scratch, table, head, n
        self.n_pages = code.b.sdiv(code.add(n, PAGE_TOKENS - 1), I64(PAGE_TOKENS))
        self.stride = code.mul(self.n_pages, PAGE_TOKENS)  # scores of one query head
        self.parts = range(0, shape.head_dim, code.lanes)

    def attend(self, first: Value, n_queries: int) -> None:
        """From scores to the output of the heads whose queries begin at entry `first` of q."""
        code = self.code
        greatest = self._scores(first, n_queries)
        scales = [self._softmax(query, code.fold(code.get(greatest[query]), code.max)) for query in range(n_queries)]
        for query, sums in enumerate(self._values(n_queries)):
            for part, total in zip(self.parts, sums, strict=True):
                index = code.add(first, query * self.shape.head_dim + part)
                code.store(code.b.fmul(total, scales[query]), code.pointer(OUT), index, self.shape.is_bf16)

    def _page(self, base: int, page: Value) -> Value:
        """The address of this head's vector of the page's first token."""
        kind, _ = self._number
        page_id = self.code.load_int(self.table, page, 32)
        start = self.code.mul(page_id, self.code.argument(PAGE_STRIDE))
        return self.code.at(self.code.pointer(base), self.code.add(start, self.code.mul(self.head, self.shape.head_dim)), kind)

    @property
    def _number(self) -> tuple[Any, int]:
        """Type and bytes of a number in a page."""
        if self.shape.is_int8:
            return I8, 1
        return (I16, 2) if self.shape.is_bf16 else (F32, 4)

    def _vectors(self, page: Value, token: Value) -> list[Value]:
        """The head_dim numbers of one token of a page, without their scale."""
        start = self.code.mul(token, self.shape.n_kv_heads * self.shape.head_dim)
        places = [self.code.add(start, part) for part in self.parts]
        if self.shape.is_int8:
            return [load_bytes(self.code, page, place) for place in places]
        return [self.code.load(page, place, self.shape.is_bf16) for place in places]

    def _scales(self, page: Value, start: int) -> Value:
        """The scales of the tokens of a page from `start` on. page: of `_page`."""
        code, shape = self.code, self.shape
        of_head = code.mul(self.head, PAGE_TOKENS * SCALE_BYTES - shape.head_dim)
        scales = code.add(of_head, PAGE_TOKENS * shape.n_kv_heads * shape.head_dim)
        return code.load(code.at(page, scales, I8), code.int(start), is_bf16=True)

    def _fetch(self, page: Value, token: Value) -> None:
        """Ask for one token's numbers ahead of time: the tokens of one head lie too far apart for the processor to guess."""
        kind, size = self._number
        start = self.code.mul(token, self.shape.n_kv_heads * self.shape.head_dim)
        for part in range(0, self.shape.head_dim, _CACHE_LINE // size):
            self.code.fetch(self.code.at(page, self.code.add(start, part), kind))

    def _scores(self, first: Value, n_queries: int) -> list[Value]:
        """Writes the scores of all keys, returns variables with the greatest ones."""
        code, b = self.code, self.code.b
        scale = code.float_argument(SCALE)
        queries: list[list[Value]] = []
        for query in range(n_queries):
            places = [code.add(first, query * self.shape.head_dim + part) for part in self.parts]
            queries.append([b.fmul(code.load(code.pointer(Q), at, self.shape.is_bf16), scale) for at in places])
        least = code.constant(float("-inf"))
        greatest = [code.variable(least) for _ in range(n_queries)]
        with code.loop(0, self.n_pages) as page:
            keys = self._page(K, page)
            ahead = self._page(K, code.least(code.add(page, 1), b.sub(self.n_pages, I64(1))))
            for start in range(0, PAGE_TOKENS, code.lanes):
                products: list[list[Value]] = [[] for _ in range(n_queries)]
                for token in range(start, start + code.lanes):
                    key = self._vectors(keys, code.int(token))
                    self._fetch(ahead, code.int(token))
                    for query in range(n_queries):
                        product = b.fmul(queries[query][0], key[0])
                        for q, k in zip(queries[query][1:], key[1:], strict=True):
                            product = code.fma(q, k, product)
                        products[query].append(product)
                position = code.add(code.mul(page, PAGE_TOKENS), start)
                for query in range(n_queries):
                    sums = code.sums_of(products[query])
                    if self.shape.is_int8:
                        sums = b.fmul(sums, self._scales(keys, start))
                    scores = code.first_lanes(sums, b.sub(self.n_keys, position), least)
                    code.put(greatest[query], code.max(code.get(greatest[query]), scores))
                    code.store(scores, self.scratch, code.add(code.mul(self.stride, query), position))
        return greatest

    def _softmax(self, query: int, greatest: Value) -> Value:
        """Replaces scores by their exponentials; returns the reciprocal of their sum."""
        code = self.code
        total = code.variable(code.constant(0.0))
        with code.loop(0, self.stride, code.lanes) as position:
            index = code.add(code.mul(self.stride, query), position)
            power = code.exp2(code.b.fsub(code.load(self.scratch, index), greatest))
            code.put(total, code.b.fadd(code.get(total), power))
            code.store(power, self.scratch, index)
        return code.b.fdiv(code.constant(1.0), code.fold(code.get(total), code.b.fadd))

    def _values(self, n_queries: int) -> list[list[Value]]:
        code = self.code
        sums = [[code.variable(code.constant(0.0)) for _ in self.parts] for _ in range(n_queries)]
        with code.loop(0, self.n_pages) as page:
            values = self._page(V, page)
            ahead = self._page(V, code.least(code.add(page, 1), code.b.sub(self.n_pages, I64(1))))
            position = code.mul(page, PAGE_TOKENS)
            if self.shape.is_int8:
                self._scale_powers(values, position, n_queries)
            with code.loop(0, code.least(PAGE_TOKENS, code.b.sub(self.n_keys, position))) as token:
                vectors = self._vectors(values, token)
                self._fetch(ahead, token)
                for query in range(n_queries):
                    index = code.add(code.mul(self.stride, query), code.add(position, token))
                    power = code.load_scalar(self.scratch, index)
                    for place, vector in zip(sums[query], vectors, strict=True):
                        code.put(place, code.fma(power, vector, code.get(place)))
        return [[code.get(place) for place in places] for places in sums]

    def _scale_powers(self, values: Value, position: Value, n_queries: int) -> None:
        """Multiplies the exponentials of a page's keys by the scales of its values, whose integers they then multiply."""
        code = self.code
        for start in range(0, PAGE_TOKENS, code.lanes):
            scales = self._scales(values, start)
            for query in range(n_queries):
                index = code.add(code.mul(self.stride, query), code.add(position, start))
                code.store(code.b.fmul(code.load(self.scratch, index), scales), self.scratch, index)
