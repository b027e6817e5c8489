"""Of several answers the client sees those that the model finds likeliest."""

from __future__ import annotations

import json

import msgspec
import numpy as np

from actors.gateway.http.formats.openai_chunks import whole_body
from actors.gateway.requests.best_of import mean_logprob, shown_answers
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import BestOf, Ended
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.logprobs import TokenLogprobs
from messages.wire.arrays import float32s
from tests.support.gateway.request_examples import request_of, spec_of
from tests.support.gateway.whole_server import ask, wait_all, whole_server

MEANS = [[-1.0, -3.0], [-0.5], [-2.0, -0.25, -0.25], [-9.0]]


def answered(best_of: BestOf | None) -> Request:
    """Two prompts with four answers each, whose tokens have these log probabilities; those of the second prompt in reverse."""
    spec = msgspec.structs.replace(spec_of(n=4, logprobs=0), prompts=spec_of().prompts * 2, best_of=best_of, api="completion")
    request = request_of(spec)
    for sequence in request.sequences:
        means = MEANS[sequence.index] if sequence.index < 4 else MEANS[7 - sequence.index]
        sequence.accept(0, [sequence.index] * len(means), TokenLogprobs(chosen=float32s(means)))
        sequence.end(Ended(reason="length"))
        sequence.publish(len(means), True)
    request.n_open = 0
    return request


def test_the_likeliest_are_shown_in_their_order() -> None:
    assert [s.index for s in shown_answers(answered(BestOf(n_shown=2, shows_logprobs=False)))] == [1, 2, 6, 5]
    assert [s.index for s in shown_answers(answered(None))] == [*range(8)]


def test_equal_ones_keep_their_order_and_no_tokens_are_the_least() -> None:
    request = request_of(spec_of(n=3, logprobs=0))
    request.sequences[1].accept(0, [5], TokenLogprobs(chosen=float32s([np.nan])))
    assert [mean_logprob(sequence) for sequence in request.sequences] == [-np.inf] * 3


def test_the_body_has_log_probabilities_only_if_they_are_wanted() -> None:
    for is_wanted in (False, True):
        body = json.loads(b"".join(whole_body(answered(BestOf(n_shown=1, shows_logprobs=is_wanted)), "m", HashChainText())))
        assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "1 "), (1, "6 ")]
        assert [choice["logprobs"] is not None for choice in body["choices"]] == [is_wanted] * 2
        assert body["usage"]["completion_tokens"] == 14, "all that were generated"


async def test_one_of_several_answers_comes() -> None:
    async with whole_server() as (r, _), r.http() as http:
        plain, best = await wait_all([ask(http, 3, 9), ask(http, 3, 9, best_of=3, n=1)])
    assert [choice["text"] for choice in best.json()["choices"]] == [plain.json()["choices"][0]["text"]]
    assert best.json()["usage"]["completion_tokens"] == 27
