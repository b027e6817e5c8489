"""HTTP answers that are read from bare connections, and what must be the same in two of them: every byte but ids and times."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.support.real_server import RealServer
from tests.support.streams import DEADLINE_S
from tests.support.workers.pulse import PULSE

PAGE = "https://chat.example.com"  # one of the clients is a web page; its server allows it with these flags
PAGE_FLAGS = ("--set", f'gateway.allowed_origins=["{PAGE}"]')

_TIMES = (
    (re.compile(rb"x-queue-wait-ms: \d+\r\n"), b""),  # only while much waits, as during a restart
    (re.compile(rb'"created":\d+'), b'"created":0'),
    (re.compile(rb"date: [^\r]*"), b"date: "),
    (
        re.compile(
            rb'"(latency_s|latency_ms|total_latency_ms|batch_throughput_tokens_per_sec|time_to_first_token_s|tokens_per_second|throughput_tokens_per_sec)":[0-9.e+-]+'
        ),
        b'"\\1":0',
    ),
    (re.compile(rb"content-length: \d+"), b"content-length: "),
    (re.compile(rb"server-timing: [^\r]*"), b"server-timing: "),
    (re.compile(rb'"created_at":"[^"]*"'), b'"created_at":""'),
    (re.compile(rb'\r\n[0-9a-f]+\r\n([^\r]*"done":true)'), b"\r\n0\r\n\\1"),
    (re.compile(rb'"(\w+_duration)":\d+'), b'"\\1":0'),
    (re.compile(rb"\r\n[0-9a-f]+\r\n(event: message_delta)"), b"\r\n0\r\n\\1"),
    # another run finds another cache
    (re.compile(rb'"(input_tokens|cache_read_input_tokens|n_cached|cached_tokens)":\d+'), b'"\\1":0'),
)


@dataclass
class HttpAnswer:
    """One answer on a connection of its own. `received`: all bytes of the response until now."""

    name: str  # in this test
    path: str
    body: dict[str, Any]
    headers: str = ""  # more lines of the request's head; some keys belong to another gateway than the one that is asked
    version: str = "1.1"  # of HTTP; an answer to 1.0 ends with its connection
    received: bytearray = field(default_factory=bytearray)
    is_over: bool = False
    over_s: float = 0.0  # on the event loop's clock
    longest_gap_s: float = 0.0
    is_closed: bool = False  # the server has closed the connection after the answer

    @property
    def n_events(self) -> int:
        """Events of a stream that have come."""
        return self.received.count(b"data: ") + self.received.count(b'"done":false')

    async def follow(self, host: str, port: int) -> None:
        """Send the request, read the answer to its end, and then ask something else on the same connection: see `is_closed`."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            body = json.dumps(self.body).encode()
            head = (
                f"POST {self.path} HTTP/{self.version}\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{self.headers}\r\n"
            )
            async with PULSE.beating():
                writer.write(head.encode() + body)
                await self._read(reader)
            if self.version == "1.0":
                assert not await reader.read(), f"{self.name}: more than the answer"
                assert b"transfer-encoding" not in self.received
                return
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            line = await reader.readline()
            self.is_closed = not line
            assert self.is_closed or line.split()[1] == b"200"
        except ConnectionResetError:
            assert self.is_over, f"{self.name}: the server closed the connection after {len(self.received)} bytes"
            self.is_closed = True
        finally:
            writer.close()

    def plain(self) -> bytes:
        """The response without what differs between two runs of one request. Choices of one stream come in any order."""
        request = re.search(rb"x-request-id: ([^\r]*)", bytes(self.received))
        assert request is not None
        data = bytes(self.received).replace(request[1], b"ID")
        for pattern, instead in _TIMES:
            data = pattern.sub(instead, data)
        return data if self.body.get("n", 1) == 1 else self._by_choice(data)

    def _by_choice(self, data: bytes) -> bytes:
        """A stream of several choices with the events of each together; checks that the chunks and the ids are in order."""
        head, _, rest = data.partition(b"\r\n\r\n")
        sizes = re.findall(rb"([0-9a-f]+)\r\n(.*?)\r\n", bytes(self.received).partition(b"\r\n\r\n")[2], re.DOTALL)
        assert all(int(size, 16) == len(event) for size, event in sizes)
        ids = [int(number) for number in re.findall(rb"\nid: (\d+)", rest)]
        assert ids == sorted(set(ids))
        events = [re.sub(rb"\n(id|retry): \d+", b"", event) for event in re.findall(rb"data: .*?\n\n", rest, re.DOTALL)]
        return head + b"".join(sorted(events, key=lambda event: re.findall(rb'"index":\d+', event)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        async with asyncio.timeout(DEADLINE_S):
            while not self._has_end():
                data = await reader.read(1 << 16)
                if not data and self.version == "1.0" and self.body.get("stream"):
                    break
                assert data, f"{self.name}: the server closed the connection after {len(self.received)} bytes"
                self.received += data
                self.longest_gap_s, before_s = max(self.longest_gap_s, loop.time() - before_s), loop.time()
        self.is_over, self.over_s = True, loop.time()

    def _has_end(self) -> bool:
        head, found, body = bytes(self.received).partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            return bool(found) and len(body) == int(length[1])
        return self.version != "1.0" and bool(found) and body.endswith(b"\r\n0\r\n\r\n")


def answers(run: str, n_tokens: int) -> list[HttpAnswer]:
    """One answer of every kind, several times. `run` is the beginning of their names."""
    made: list[HttpAnswer] = []
    for nth in range(3):
        prompt = [7, 7, nth, 1]
        common: dict[str, Any] = {"max_tokens": n_tokens, "temperature": 0}
        whole = {**common, "prompt": prompt}
        streamed = {**whole, "stream": True}
        made += [
            HttpAnswer(f"{run}-plain-{nth}", "/v1/completions", streamed),
            HttpAnswer(f"{run}-usage-{nth}", "/v1/completions", {**streamed, "stream_options": {"include_usage": True}}),
            HttpAnswer(f"{run}-seeds-{nth}", "/v1/completions", {**streamed, "temperature": 1.0, "seed": nth + 1}),
            HttpAnswer(f"{run}-three-{nth}", "/v1/completions", {**streamed, "n": 3, "seed": nth + 1, "temperature": 1.0}),
            HttpAnswer(f"{run}-whole-{nth}", "/v1/completions", whole),
            HttpAnswer(f"{run}-ownid-{nth}", "/v1/generate", {**common, "tokens": prompt}),
            HttpAnswer(f"{run}-keyed-{nth}", "/v1/completions", streamed, f"idempotency-key: {run} keyed {nth}\r\n"),
            HttpAnswer(f"{run}-keyedwhole-{nth}", "/v1/completions", whole, f"idempotency-key: {run} whole {nth}\r\n"),
            HttpAnswer(
                f"{run}-ollama-{nth}",
                "/api/generate",
                {"prompt": f"{nth}", "raw": True, "stream": True, "options": {"num_predict": n_tokens, "temperature": 0}},
            ),
            HttpAnswer(
                f"{run}-anthropic-{nth}",
                "/v1/messages",
                {**common, "stream": True, "messages": [{"role": "user", "content": f"{nth}"}]},
            ),
            HttpAnswer(f"{run}-batch-{nth}", "/v1/batch", {**common, "tokens": [prompt, [*prompt, 5]]}),
            HttpAnswer(
                f"{run}-requests-{nth}",
                "/v1/batch",
                {"requests": [{**common, "tokens": prompt}, {"prompt": f"{nth}", "max_tokens": n_tokens, "seed": nth}]},
            ),
        ]
    of_page = {"max_tokens": n_tokens, "temperature": 0, "stream": True, "prompt": [9, 9]}
    page = HttpAnswer(f"{run}-page", "/v1/completions", of_page, f"origin: {PAGE}\r\n")
    return [*made, *_old_answers(run, n_tokens), page]


def _old_answers(run: str, n_tokens: int) -> list[HttpAnswer]:
    """Answers to clients of HTTP/1.0."""
    made: list[HttpAnswer] = []
    for nth in range(3):
        whole = {"max_tokens": n_tokens, "temperature": 0, "prompt": [7, 7, nth, 2]}
        streamed, key = {**whole, "stream": True}, f"idempotency-key: {run} old {nth}\r\n"
        made += [
            HttpAnswer(f"{run}-http10-{nth}", "/v1/completions", streamed, version="1.0"),
            HttpAnswer(f"{run}-http10whole-{nth}", "/v1/completions", whole, version="1.0"),
            HttpAnswer(f"{run}-http10keyed-{nth}", "/v1/completions", streamed, key, version="1.0"),
        ]
    return made


async def wait_events(running: list[HttpAnswer], n_events: int) -> None:
    """Until every stream has so many events; one of them at least is not over."""
    streams = [one for one in running if one.body.get("stream")]
    async with asyncio.timeout(DEADLINE_S):
        while min(one.n_events for one in streams) < n_events:
            await asyncio.sleep(0.005)
    assert not all(one.is_over for one in streams), "every stream is over already: nothing would be cut"


async def wait_another_event(running: list[HttpAnswer]) -> None:
    """Until every stream that is not over has had one more event; one of them at least is not over then."""
    at_least = [(one, one.n_events + 1) for one in running if one.body.get("stream")]
    async with asyncio.timeout(DEADLINE_S):
        while not all(one.is_over or one.n_events >= n_events for one, n_events in at_least):
            await asyncio.sleep(0.001)
    assert not all(one.is_over for one, _ in at_least), "every stream is over already: nothing would be cut"


async def wait_held(server: RealServer, n_sockets: int, after: int = 0) -> None:
    """Until a custodian, in an incarnation after this one, says that it holds so many sockets."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            custodian = await asyncio.to_thread(server.child, "custodian/0")
            if custodian.incarnation > after and custodian.statistics.get("sockets", 0) >= n_sockets:
                return
            await asyncio.sleep(0.05)


async def wait_spare(server: RealServer, name: str) -> None:
    """Until the next process of this child waits with everything imported."""
    async with asyncio.timeout(DEADLINE_S):
        while not (await asyncio.to_thread(server.child, name)).has_spare:
            await asyncio.sleep(0.05)


async def wait_let_go(server: RealServer) -> None:
    """Until the custodian says that it holds no socket."""
    async with asyncio.timeout(DEADLINE_S):
        while (await asyncio.to_thread(server.child, "custodian/0")).statistics.get("sockets", 0):
            await asyncio.sleep(0.05)
