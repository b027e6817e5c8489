"""The log probabilities of a sequence: any part of them at any time, for a cost that does not grow with the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from actors.gateway.requests import sequence_logprobs
from actors.gateway.requests.sequence_logprobs import SequenceLogprobs
from messages.generation.logprobs import TokenLogprobs, join_logprobs

WIDTH = 2


def logprobs_from(first: int, n_tokens: int) -> TokenLogprobs:
    """Those of tokens first, first + 1, ..., all different."""
    top = np.arange(first * WIDTH, (first + n_tokens) * WIDTH)
    chosen = np.arange(first, first + n_tokens, dtype="<f4")
    return TokenLogprobs(chosen=chosen, width=WIDTH, top_ids=top.astype("<i4"), top=top.astype("<f4"))


def values_of(part: TokenLogprobs) -> tuple[list, list, list]:
    return part.chosen.tolist(), part.top_ids.tolist(), part.top.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_every_part_can_be_read_at_any_time(seed: int) -> None:
    chance, known, n_tokens = random.Random(seed), SequenceLogprobs(), 0
    for _ in range(60):
        n_new = chance.choice([1, 1, 1, 2, 5, 40])
        known.add(logprobs_from(n_tokens, n_new))
        n_tokens += n_new
        start = chance.randrange(n_tokens)
        stop = chance.randint(start, n_tokens)
        assert values_of(known.of(start, stop)) == values_of(logprobs_from(start, stop - start)), (start, stop)
    assert values_of(known.of(0, n_tokens)) == values_of(logprobs_from(0, n_tokens))


def test_without_any_there_are_none() -> None:
    assert SequenceLogprobs().of(0, 3).n_tokens == 0


def test_a_token_of_a_long_answer_costs_about_as_much_as_one_of_a_short_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    n_tokens, n_copied = 4096, 0

    def join_counted(parts: Sequence[TokenLogprobs]) -> TokenLogprobs:
        nonlocal n_copied
        n_copied += sum(part.n_tokens for part in parts)
        return join_logprobs(parts)

    monkeypatch.setattr(sequence_logprobs, "join_logprobs", join_counted)
    known = SequenceLogprobs()
    for first in range(n_tokens):
        known.add(logprobs_from(first, 1))
        assert values_of(known.of(first, first + 1)) == values_of(logprobs_from(first, 1))
    assert n_copied <= n_tokens * 12  # log2 of 4,096
