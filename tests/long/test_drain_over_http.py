"""A drain that ends before its answers do: over HTTP the next start of the server goes on at the next event."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Callable

import pytest

from messages.outcomes import ExitCode
from tests.support.real_server import WITH_SPARES, RealServer
from tests.support.workers.pulse import PULSE

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
DEADLINE_S = 120.0
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01", "--set", "supervisor.drain_s=0.5")
N_TOKENS = 600


def events(
    port: int, key: str, after: str = "", at_most: int = 1 << 30, on_enough: Callable[[], None] = lambda: None
) -> list[bytes]:
    """The lines of a stream with content, from the event after this id; `on_enough` is called after `at_most` of them. key: ""
    for a request without one."""
    body = {"model": "hash-chain", "prompt": [1, 2, 3], "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
    keys = ({"Idempotency-Key": key} if key else {}) | ({"Last-Event-ID": after} if after else {})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    content = json.dumps(body | {"ignore_eos": True})
    connection.request("POST", "/v1/completions", content, {"Content-Type": "application/json"} | keys)
    return lines_of(connection, at_most, on_enough)


def lines_again(port: int, name: str, after: str) -> list[bytes]:
    """The same lines of the stream with this id, asked for again."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request("GET", f"/v1/streams/{name}", headers={"Last-Event-ID": after})
    return lines_of(connection, 1 << 30, lambda: None)


def lines_of(connection: http.client.HTTPConnection, at_most: int, on_enough: Callable[[], None]) -> list[bytes]:
    """The lines of the answer that comes; those that came if the server ends."""
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    lines: list[bytes] = []
    try:
        while line := answer.readline():
            if line.startswith((b"data:", b"id:")):
                lines.append(line.strip())
                if len(lines) == at_most:
                    on_enough()
    except (OSError, http.client.HTTPException):
        pass  # the server has ended
    return lines


def texts(lines: list[bytes]) -> list[str]:
    """What a client shows of these lines."""
    return [json.loads(line[5:])["choices"][0]["text"] for line in lines if b"{" in line]


@pytest.mark.parametrize("key", ["k", ""], ids=["with a key", "without a key"])
def test_a_stream_goes_on_after_a_drain_that_was_too_short(key: str) -> None:
    server = RealServer(*WITH_SPARES, *FLAGS)
    try:
        with PULSE.held():
            first = events(server.port, key, at_most=40, on_enough=lambda: server.process.send_signal(signal.SIGTERM))
            assert server.process.wait(DEADLINE_S) == ExitCode.DEADLINE, server.log()
        PULSE.end()
        ids = [index for index, line in enumerate(first) if line.startswith(b"id:")]
        kept = first[: ids[-1] + 1]
        assert not any(b"[DONE]" in line for line in kept), "the answer was complete before the server ended"
        server.start_again()
        name, after = json.loads(kept[-2].removeprefix(b"data: "))["id"], kept[-1].removeprefix(b"id: ").decode()
        rest = events(server.port, key, after) if key else lines_again(server.port, name, after)
        assert rest[-1].startswith(b"id:")
        assert rest[-2] == b"data: [DONE]"
        assert not key or [*kept, *rest] == events(server.port, key)
        assert texts([*kept, *rest]) == texts(events(server.port, "other"))
        assert server.stop() == 0, server.log()
    finally:
        server.clean()
