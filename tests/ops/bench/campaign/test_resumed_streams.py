"""A client that comes back: no text twice, none missing, whatever a connection was cut off from."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from ops.bench.campaign.resumed_streams import follow_through
from supervisor.drill.streams import DrillStream, StreamRequest

OPTIONS = StreamRequest("http://server", "m", 1, 3, 5.0, ignores_end=True, api_key="")


def event(number: int, text: str, finish: str | None = None) -> bytes:
    data = {"id": "cmpl-1", "choices": [{"text": text, "finish_reason": finish}]}
    return f"id: {number}\ndata: {json.dumps(data)}\n\n".encode()


WHOLE = event(1, "a ") + event(2, "b ") + event(3, "c ", "length") + b"data: [DONE]\n\n"


class CutOff(httpx.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        raise httpx.ReadError("reset by peer")


async def read(first: httpx.Response, *more: httpx.Response) -> tuple[DrillStream, list[httpx.Request]]:
    answers, asked = [first, *more], list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answers[len(asked) - 1]

    stream = DrillStream("a prompt", key="mine")
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        await follow_through(http, OPTIONS, stream)
    return stream, asked


@pytest.mark.parametrize("n_bytes", range(1, len(event(1, "a ") + event(2, "b ")) + 1))
async def test_the_rest_comes_after_a_cut_at_any_byte(n_bytes: int) -> None:
    has = WHOLE[:n_bytes].count(b"\n\n")
    rest = b"".join([event(1, "a "), event(2, "b "), event(3, "c ", "length")][has:])
    stream, asked = await read(httpx.Response(200, stream=CutOff(WHOLE[:n_bytes])), httpx.Response(200, content=rest))
    assert (stream.text, stream.is_complete, stream.error) == ("a b c ", True, "")
    assert asked[0].headers["idempotency-key"] == "mine"
    if has:
        assert (asked[1].method, asked[1].url.path) == ("GET", "/v1/streams/cmpl-1")
        assert asked[1].headers["last-event-id"] == str(has)
    else:
        assert (asked[1].method, asked[1].url.path) == ("POST", "/v1/completions")


async def test_a_server_that_is_not_ready_is_asked_again() -> None:
    stream, asked = await read(httpx.Response(503), httpx.Response(200, content=WHOLE))
    assert (stream.text, len(asked)) == ("a b c ", 2)


async def test_an_answer_that_is_gone_is_an_error() -> None:
    first = httpx.Response(200, stream=CutOff(event(1, "a ")))
    stream, _ = await read(first, httpx.Response(410, content=b"not kept any more"))
    assert (stream.is_complete, stream.error) == (False, "HTTP 410: not kept any more")


async def test_an_error_in_the_stream_ends_it() -> None:
    stream, _ = await read(httpx.Response(200, content=event(1, "a ") + b'data: {"error": {"message": "failed"}}\n\n'))
    assert stream.error == 'error in the stream: {"message": "failed"}'
