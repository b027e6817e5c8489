"""Attention over pages of small integers: `paged_attention` with queries and sums that are transformed instead of keys.

A half of a query times a half of a key is the same when both are transformed. So queries are transformed once, codes are
multiplied as they are, and scores get the scales of each half. What codes stand for has an offset; queries times the offset,
and the sum of all weights times it, are computed once. Weights times codes are summed, and the sum is transformed back.
"""

from __future__ import annotations

from functools import reduce

from gpu_workers.cpu.kernels.pages.int4_pages import SmallVectors, hadamard
from gpu_workers.cpu.kernels.pages.int8_pages import I8
from gpu_workers.cpu.kernels.pages.paged_attention import SCALE, AttentionUnit, K, Q, V
from gpu_workers.cpu.kernels.vector_code import I64, Value
from gpu_workers.layers.small_pages import KEY_LEVELS, VALUE_LEVELS
from messages.steps import PAGE_TOKENS

_KEY_MIDDLE, _VALUE_MIDDLE = (KEY_LEVELS - 1) / 2, (VALUE_LEVELS - 1) / 2


class SmallUnit(AttentionUnit):
    """The code of one token and kv head over such pages. Weights of each half of the values stand in the scratch memory."""

    scratches = 2

    def _vectors_of(self, *, is_key: bool) -> SmallVectors:
        return SmallVectors(self.code, self.shape.head_dim, self.code.int(self.shape.n_kv_heads), self.head, is_key=is_key)

    def _page(self, base: int, page: Value) -> Value:
        """The address of a page."""
        start = self.code.mul(self.code.load_int(self.table, page, 32), self.code.argument(self.stride_word))
        return self.code.at(self.code.pointer(base), start, I8)

    def _ask_for(self, vectors: SmallVectors, page: Value, token: Value) -> None:
        """Ask for one token's numbers and planes ahead of time."""
        self.code.fetch(vectors.numbers(page, token))
        self.code.fetch(vectors.planes(page, token))

    def _queries(self, first: Value, n_queries: int) -> list[list[tuple[list[Value], Value]]]:
        """For each query both halves, transformed and multiplied by the factor of all scores, and what each adds to the scores
        of all keys, because codes have an offset."""
        code, half = self.code, self.shape.head_dim // 2
        scale, queries = code.float_argument(SCALE), []
        for query in range(n_queries):
            start = code.add(first, query * self.shape.head_dim)
            places = [[code.add(start, at + part) for part in range(0, half, code.lanes)] for at in (0, half)]
            halves = ([code.load(code.pointer(Q), at, self.shape.is_bf16) for at in parts] for parts in places)
            turned = ([code.b.fmul(x, scale) for x in hadamard(code, parts)] for parts in halves)
            queries.append([(self._paired if self._has_pairs else self._with_offset)(parts) for parts in turned])
        return queries

    @property
    def _has_pairs(self) -> bool:
        """True where queries are rounded to bfloat16, and pairs of their products are summed by one instruction."""
        return self.shape.is_bf16 and self.code.machine.has_bf16_dot

    def _with_offset(self, parts: list[Value]) -> tuple[list[Value], Value]:
        total = reduce(self.code.b.fadd, parts)
        return parts, self.code.b.fmul(total, self.code.constant(-_KEY_MIDDLE))

    def _paired(self, parts: list[Value]) -> tuple[list[Value], Value]:
        """For numbers 1 + code / 32 instead of codes."""
        code = self.code
        rounded = [code.rounded_to_bf16(code.b.fmul(part, code.constant(KEY_LEVELS))) for part in parts]
        offset = code.b.fmul(reduce(code.b.fadd, rounded), code.constant(-(1 + _KEY_MIDDLE / KEY_LEVELS)))
        return [code.paired(one, other) for one, other in zip(rounded[::2], rounded[1::2], strict=True)], offset

    def _scores(self, first: Value, n_queries: int) -> list[Value]:
        """Writes the scores of all keys, returns variables with the greatest ones."""
        code, b, vectors = self.code, self.code.b, self._vectors_of(is_key=True)
        queries = self._queries(first, n_queries)
        load = vectors.load_key_pairs if self._has_pairs else vectors.load_keys
        add = code.dot_pairs if self._has_pairs else code.fma
        least = code.constant(float("-inf"))
        greatest = [code.variable(least) for _ in range(n_queries)]
        with code.loop(0, self.n_pages) as page:
            keys = self._page(K, page)
            ahead = self._page(K, code.least(code.add(page, 1), b.sub(self.n_pages, I64(1))))
            for start in range(0, PAGE_TOKENS, code.lanes):
                products: list[list[list[Value]]] = [[[], []] for _ in range(n_queries)]
                for token in range(start, start + code.lanes):
                    key = load(keys, code.int(token))
                    self._ask_for(vectors, ahead, code.int(token))
                    for halves, of_query in zip(queries, products, strict=True):
                        for (query, product), parts, of_half in zip(halves, key, of_query, strict=True):
                            for q, k in zip(query, parts, strict=True):
                                product = add(q, k, product)
                            of_half.append(product)
                scales = [vectors.load_scales(keys, half, start) for half in (0, 1)]
                position = code.add(code.mul(page, PAGE_TOKENS), start)
                for query in range(n_queries):
                    one, other = (code.sums_of(of_half) for of_half in products[query])
                    sums = code.fma(one, scales[0], b.fmul(other, scales[1]))
                    scores = code.first_lanes(sums, b.sub(self.n_keys, position), least)
                    code.put(greatest[query], code.max(code.get(greatest[query]), scores))
                    code.store(scores, self.scratch, code.add(code.mul(self.stride, query), position))
        return greatest

    def _values(self, n_queries: int) -> list[list[Value]]:
        code, b, vectors = self.code, self.code.b, self._vectors_of(is_key=False)
        zero, n_parts = code.constant(0.0), self.shape.head_dim // 2 // code.lanes
        sums = [[[code.variable(zero) for _ in range(n_parts)] for _ in (0, 1)] for _ in range(n_queries)]
        totals = [[code.variable(zero) for _ in (0, 1)] for _ in range(n_queries)]
        with code.loop(0, self.n_pages) as page:
            values = self._page(V, page)
            ahead = self._page(V, code.least(code.add(page, 1), b.sub(self.n_pages, I64(1))))
            position = code.mul(page, PAGE_TOKENS)
            self._scale_weights(vectors, values, position, totals)
            with code.loop(0, code.least(PAGE_TOKENS, b.sub(self.n_keys, position))) as token:
                halves = vectors.load_values(values, token)
                self._ask_for(vectors, ahead, token)
                for query in range(n_queries):
                    for half, parts in enumerate(halves):
                        index = code.add(self._weights(query, half, n_queries), code.add(position, token))
                        weight = code.load_scalar(self.scratch, index)
                        for place, part in zip(sums[query][half], parts, strict=True):
                            code.put(place, code.fma(weight, part, code.get(place)))
        return [self._transformed_back(*both) for both in zip(sums, totals, strict=True)]

    def _weights(self, query: int, half: int, n_queries: int) -> Value:
        """Where the weights of the values' halves begin in the scratch memory."""
        return self.code.mul(self.stride, half * n_queries + query)

    def _scale_weights(self, vectors: SmallVectors, values: Value, position: Value, totals: list[list[Value]]) -> None:
        """Multiplies the exponentials of a page's keys by the scales of each half of its values, and adds them up."""
        code, n_queries = self.code, len(totals)
        for start in range(0, PAGE_TOKENS, code.lanes):
            scales = [vectors.load_scales(values, half, start) for half in (0, 1)]
            for query, of_query in enumerate(totals):
                place = code.add(position, start)
                powers = code.load(self.scratch, code.add(self._weights(query, 0, n_queries), place))
                for half, total in enumerate(of_query):
                    weights = code.b.fmul(powers, scales[half])
                    code.put(total, code.b.fadd(code.get(total), weights))
                    code.store(weights, self.scratch, code.add(self._weights(query, half, n_queries), place))

    def _transformed_back(self, sums: list[list[Value]], totals: list[Value]) -> list[Value]:
        code, out = self.code, []
        for parts, total in zip(sums, totals, strict=True):
            offset = code.b.fmul(code.fold(code.get(total), code.b.fadd), code.constant(-_VALUE_MIDDLE))
            out += hadamard(code, [code.b.fadd(code.get(part), offset) for part in parts])
        return out
