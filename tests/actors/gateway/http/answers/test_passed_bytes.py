"""A successor does not make the events that a client has: it computes how many bytes they have, and writes the same rest."""

from __future__ import annotations

import numpy as np
import pytest

from actors.gateway.http.answers.stream_bytes import Begun, as_chunk, stream_head
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api, RequestSpec
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from tests.support.gateway.asgi_exchange import LENGTH, MODEL

# texts of several lengths, one of them empty, on both sides of an event of 256 bytes: its chunk needs a digit more there
TOKENS = [*range(3, 12), 999_999_999, 10**9, 2, *range(90, 103)]


def request_of(api: Api, *, is_resumable: bool, logprobs: int = -1) -> Request:
    """A request whose first 24 tokens were in the journal; it has two more, and its ending."""
    spec = RequestSpec(
        request="x" * 31,
        api=api,
        created_s=1e9,
        prompts=[np.array([1, 2], "<i4").tobytes()],
        sampling=Sampling(logprobs=logprobs),
        terms=Terms(max_tokens=100, stop_tokens=[2]),
        is_resumable=is_resumable,
        echo=["1 2 "] if api == "completion" else [],
    )
    request = Request(7, spec, MODEL.detokenizer, 0.0)
    sequence = request.sequences[0]
    sequence.accept(0, TOKENS)
    sequence.publish(len(TOKENS), False)
    request.n_restored_items = len(TOKENS)
    sequence.accept(len(TOKENS), [12345, 6])
    sequence.end(LENGTH)
    sequence.publish(len(TOKENS) + 2, True)
    request.n_open = 0
    return request


def events_of(request: Request) -> StreamEvents:
    return StreamEvents(request, ChunkWriter(request, "model" * 9, MODEL))


@pytest.mark.parametrize("api", ["completion", "chat"])
@pytest.mark.parametrize("is_resumable", [True, False])
@pytest.mark.parametrize("is_bare", [True, False])
def test_the_rest_is_the_same_wherever_the_client_was_cut_off(api: Api, is_resumable: bool, is_bare: bool) -> None:
    request = request_of(api, is_resumable=is_resumable)
    n_head = len(stream_head(request, is_kept_alive=True)) + 7
    chunks = [event if is_bare else as_chunk(event) for event in events_of(request).take()]
    whole = b"".join(chunks)
    sizes, most_passed = {len(chunk) for chunk in chunks}, 0
    assert len(sizes) > 4
    ends = [sum(map(len, chunks[:n])) for n in range(len(chunks) + 1)]
    for n_body in sorted({*range(0, len(whole), 97), *ends, *(end + 1 for end in ends[:-1]), *(end - 1 for end in ends[1:])}):
        events, begun = events_of(request), Begun(0, n_head + n_body, 7, 0, is_bare)
        assert begun.n_head_bytes(request, events) == n_head
        n_passed = begun.pass_written(request, events, n_head)
        n_whole = 0  # bytes of the events that the client has whole
        for chunk in chunks[: len(TOKENS)]:
            n_whole += len(chunk) if n_whole + len(chunk) <= n_body else 0
        most_passed = max(most_passed, n_passed)
        assert n_passed <= n_body
        is_more = begun.exceeds_journal(request, events, n_head + n_passed)
        assert is_more == begun.exceeds_journal(request, events_of(request), n_head), "passing events changes no answer"
        rest = b"".join(event if is_bare else as_chunk(event) for event in events.take())
        assert rest == whole[n_passed:]
        assert n_body - n_passed <= max(sizes) or is_more, "at most a part of one event is made again"
    assert most_passed > len(whole) // 2


def test_events_whose_lengths_are_unknown_are_made_again() -> None:
    request = request_of("chat", is_resumable=True, logprobs=0)
    events, opening = events_of(request), events_of(request).take(0)
    assert Begun(0, 10_000).pass_written(request, events, 100) == sum(map(len, map(as_chunk, opening)))
    assert [*opening, *events.take()] == events_of(request).take()


@pytest.mark.parametrize("is_resumable", [True, False])
def test_a_response_without_tokens_has_nothing_but_its_openings_to_pass(is_resumable: bool) -> None:
    spec = RequestSpec(
        request="x" * 31, api="chat", created_s=1e9, prompts=[np.array([1, 2], "<i4").tobytes()], sampling=Sampling(),
        terms=Terms(max_tokens=100, stop_tokens=[2]), is_resumable=is_resumable,
    )  # fmt: skip
    request = Request(7, spec, MODEL.detokenizer, 0.0)
    head = len(stream_head(request, is_kept_alive=True)) + 7
    openings = sum(map(len, map(as_chunk, events_of(request).take(0))))
    assert openings > 0
    assert Begun(0, head, 7).pass_written(request, events_of(request), head) == 0
    assert Begun(0, head + openings, 7).pass_written(request, events_of(request), head) == openings
