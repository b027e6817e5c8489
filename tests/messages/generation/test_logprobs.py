"""Log probabilities of tokens are cut, placed and joined without losing a token or its top ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.generation.logprobs import TokenLogprobs, join_logprobs, place_logprobs
from messages.wire.arrays import float32s, int32s


def some(n_tokens: int, width: int, start: int = 0) -> TokenLogprobs:
    """Token i has log probability -(start + i); its k-th top token has id 100 * (start + i) + k."""
    tokens = range(start, start + n_tokens)
    return TokenLogprobs(
        chosen=float32s([-float(i) for i in tokens]),
        width=width,
        top_ids=int32s([100 * i + k for i in tokens for k in range(width)]),
        top=float32s([-float(k) for _ in tokens for k in range(width)]),
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=6))
def test_joined_parts_keep_their_tokens(shapes: list[tuple[int, int]]) -> None:
    starts = np.cumsum([0, *(n for n, _ in shapes)]).tolist()
    joined = join_logprobs([some(n, width, start) for (n, width), start in zip(shapes, starts, strict=False)])
    assert joined.chosen.tolist() == [-float(i) for i in range(starts[-1])]
    for (n, width), start in zip(shapes, starts, strict=False):
        for i in range(start, start + n):
            assert joined.top_of(i) == [(100 * i + k, -float(k)) for k in range(width)]


@given(st.integers(0, 6), st.integers(0, 3), st.data())
def test_a_part_is_what_stands_there(n_tokens: int, width: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, n_tokens))
    stop = data.draw(st.integers(start, n_tokens))
    part, expected = some(n_tokens, width).part(start, stop), some(stop - start, width, start)
    assert part.chosen.tolist() == expected.chosen.tolist()
    assert part.top_ids.tolist() == expected.top_ids.tolist()
    assert part.top.tolist() == expected.top.tolist()


def test_tokens_that_nobody_asked_about_are_fill() -> None:
    placed = place_logprobs(3, [(1, some(1, 2, 7))])
    assert np.isnan(placed.chosen).tolist() == [True, False, True]
    assert [placed.top_of(i) for i in range(3)] == [[], [(700, 0.0), (701, -1.0)], []]
    assert placed.top_of(1, most=1) == [(700, 0.0)]


@pytest.mark.parametrize("name", ["top_ids", "top"])
def test_another_number_of_top_tokens_is_refused(name: str) -> None:
    fields = {"chosen": float32s([0.0, 0.0]), "width": 1, "top_ids": int32s([1, 2]), "top": float32s([0.0, 0.0])}
    with pytest.raises(ValueError, match=f"{name}: expected 2 items, got 1"):
        TokenLogprobs(**{**fields, name: fields[name][:1]})
