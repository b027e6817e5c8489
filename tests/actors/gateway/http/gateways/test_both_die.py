"""Both gateways die while one forwards a stream of several sequences that the other owns, and its client has all of it."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.gateway.custody.hold import HeldResponse
from actors.gateway.http.answers.stream_bytes import CHUNKED, as_chunk
from actors.gateway.other_gateways.owners import Owners
from actors.gateway.takeover import left_answers
from tests.support.gateway.asgi_stream import AsgiStream
from tests.support.gateway.gateway_rig import two_gateways
from tests.support.gateways.forwarding import key_of, replace_owner, until_submitted
from tests.support.waiting import DEADLINE_S, next_turn

pytestmark = pytest.mark.slow

BODY = {"prompt": [1, 2], "max_tokens": 8, "n": 2, "seed": 5, "stream": True}


def n_bytes_of(stream: AsgiStream) -> int:
    """The bytes of a response over HTTP/1.1, as far as it has come."""
    head = "".join(f"{name}: {value}\r\n" for name, value in stream.headers.items())
    events = re.findall(rb".*?\n\n", stream.body, re.DOTALL)
    assert b"".join(events) == stream.body
    return len("HTTP/1.1 200 OK\r\n" + head + "\r\n") + len(CHUNKED) + sum(len(as_chunk(event)) for event in events)


async def test_a_client_that_has_all_that_the_journal_has_is_not_cut() -> None:
    async with two_gateways() as (r, second, scheduler):
        key = key_of(0)
        stream = AsgiStream(second, "/v1/completions", BODY, {"Idempotency-Key": key})
        await until_submitted(r, 2)
        scheduler.step(2)
        await stream.until_id(4)
        has, n_written = stream.body, n_bytes_of(stream)
        server = await replace_owner(r)
        await until_submitted(r, 4)
        again = AsgiStream(second, "/none")  # what the client of gateway 1's successor sees
        left: Any = SimpleNamespace(response=HeldResponse(key, "/v1/completions", 0, 0, 0, True), cut=again.be_cut)
        settings = second.gateway.settings
        owners, admission = Owners(1, settings.http_sockets), SimpleNamespace(knows=lambda request: False)
        services = SimpleNamespace(owners=owners, admission=admission, settings=settings)
        rebuilt = await left_answers._answer(left, n_written, {}, cast(Any, services))
        assert rebuilt is not None
        await again.serve(rebuilt.app)
        async with asyncio.timeout(DEADLINE_S):
            while not (again.is_complete or again.is_cut):
                scheduler.step()
                await next_turn()
        assert not again.is_cut
        assert again.body.startswith(has)
        await stream.end()
        await server.stop()
