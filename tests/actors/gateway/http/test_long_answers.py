"""A long answer is made in many turns of the event loop, and its bytes are those of one that is made at once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from actors.gateway.http.answers.sse import join_pieces
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.openai_chunks import ChunkWriter, whole_body
from actors.gateway.http.formats.openai_logprobs import logprobs_json
from actors.gateway.http.formats.plain_bodies import batch_body
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api, RequestSpec
from messages.generation.logprobs import TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.asgi_exchange import LENGTH, MODEL
from tests.support.waiting import count_turns

WIDTH = 3


def long_request(api: Api, n: int, n_tokens: int, logprobs: int) -> Request:
    """A request that is over, of `n` sequences with `n_tokens` each."""
    spec = RequestSpec(
        request="r",
        api=api,
        created_s=1e9,
        prompts=[np.array([1, 2], "<i4").tobytes()],
        sampling=Sampling(logprobs=logprobs),
        terms=Terms(max_tokens=n_tokens + 1),
        n=n,
    )
    request = Request(7, spec, MODEL.detokenizer, 0.0)
    for sequence in request.sequences:
        ids = [(7 * sequence.index + i) % 50 for i in range(n_tokens)]
        top = TokenLogprobs(
            chosen=np.linspace(-2.0, -0.5, n_tokens, dtype="<f4"),
            width=WIDTH,
            top_ids=np.arange(WIDTH * n_tokens, dtype="<i4") % 50,
            top=np.full(WIDTH * n_tokens, -0.5, "<f4"),
        )
        sequence.accept(0, ids, top if logprobs >= 0 else None)
        sequence.end(LENGTH)
        sequence.publish(n_tokens, True)
        request.n_open -= 1
    return request


@pytest.mark.parametrize("api", ["chat", "completion"])
@pytest.mark.parametrize("n_tokens", [0, 1, 64, 65, 200])
def test_a_body_with_log_probabilities_is_that_of_one_piece(api: Api, n_tokens: int) -> None:
    request = long_request(api, 2, n_tokens, WIDTH)
    pieces = list(whole_body(request, "model", MODEL))
    for sequence, choice in zip(request.sequences, json.loads(b"".join(pieces))["choices"], strict=True):
        whole = logprobs_json(sequence, 0, n_tokens, MODEL, is_chat=api == "chat", offset=0)
        assert choice["logprobs"] == json.loads(json.dumps(whole))
    assert pieces.count(b"") == 2 * max(1, -(-n_tokens // 64)), "a turn of the event loop for each 64 tokens"


async def test_others_have_their_turns_while_a_long_body_is_made() -> None:
    async with count_turns() as turns:
        await join_pieces(whole_body(long_request("completion", 2, 640, WIDTH), "model", MODEL))
        assert turns.n >= 20
    async with count_turns() as turns:
        body = await join_pieces(batch_body(long_request("generate", 128, 1000, -1)))
        assert turns.n >= len(body) // 80_000 > 3


@pytest.mark.parametrize(("n_tokens", "logprobs", "most"), [(3000, -1, 1024), (200, WIDTH, 64)])
def test_a_late_reader_gets_the_events_in_many_turns(n_tokens: int, logprobs: int, most: int) -> None:
    request = long_request("completion", 1, n_tokens, logprobs)
    whole = StreamEvents(request, ChunkWriter(request, "model", MODEL)).take()
    events, parts = StreamEvents(request, ChunkWriter(request, "model", MODEL)), []
    while not events.is_done:
        assert events.has_more or not parts
        parts.append(events.take_some())
    assert [event for part in parts for event in part] == whole
    assert max(map(len, parts)) <= most + 2, "with the end and [DONE]"
    assert not events.has_more
