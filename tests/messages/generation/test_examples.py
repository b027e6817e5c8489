"""Sampling parameters and the terms of ranks: each is declared with an example, so that a warm-up uses all of them."""

from __future__ import annotations

import msgspec
import pytest

from messages.generation.examples import example_of
from messages.generation.sampling import Sampling
from messages.generation.terms import RankTerms, Terms


@pytest.mark.parametrize(("kind", "expected"), [(Sampling, {"seed"}), (RankTerms, set())])
def test_the_example_uses_every_field_but_the_seed(kind: type[msgspec.Struct], expected: set[str]) -> None:
    example, default = example_of(kind), kind()
    assert {name for name in kind.__struct_fields__ if getattr(example, name) == getattr(default, name)} == expected


def test_ranks_get_their_terms_and_no_others() -> None:
    terms = Terms(min_tokens=3, stop_tokens=[7, 9], max_tokens=5, stop=["x"])
    assert type(terms.of_ranks()) is RankTerms
    assert terms.of_ranks() == RankTerms(min_tokens=3, stop_tokens=[7, 9])
    assert terms.of_ranks().banned_tokens == [7, 9]
    assert RankTerms(stop_tokens=[7, 9]).banned_tokens == []
