"""A drain ends when clients have read the end: slow readers on real sockets, ZeroMQ clients that come back, and the limits."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from messages import public
from messages.client import AsyncClient
from tests.support.gateway.fake_scheduler import FakeScheduler, ids_text, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.zmq_clients import GREEDY, generate, receive_four_of_eight, zmq_rig
from tests.support.waiting import DEADLINE_S, until

N_TOKENS = 4000  # some 23 kB as text
LONG_S = 500.0


def is_drained(r: Rig) -> bool:
    return "gateway/0" in r.cluster.drained


async def looked(r: Rig, n_times: int = 3) -> None:
    """Let the drain look a few times."""
    assert r.gateway.draining is not None
    for _ in range(n_times):
        r.gateway.draining.poll()
        await r.cluster.settle()


class SlowReader:
    """One request over a connection that takes a few kB at a time."""

    def __init__(self, r: Rig, path: str, **fields: object) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect(r.address)
        body = json.dumps({"max_tokens": N_TOKENS, "temperature": 0, **fields}).encode()
        self._socket.sendall(
            b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body
        )
        self._socket.setblocking(False)
        self.got = b""

    async def read(self, n_bytes: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while n_bytes > 0:
                part = await asyncio.get_running_loop().sock_recv(self._socket, min(n_bytes, 2048))
                assert part, "the server has closed"
                n_bytes -= len(part)
                self.got += part

    async def read_to(self, end: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not self.got.endswith(end):
                part = await asyncio.get_running_loop().sock_recv(self._socket, 2048)
                assert part, "the server has closed"
                self.got += part

    def close(self) -> None:
        self._socket.close()


async def everything_computed(r: Rig, scheduler: FakeScheduler) -> None:
    """All requests run to their end at once."""
    await until(lambda: scheduler.running)
    scheduler.step(N_TOKENS)
    manager = r.gateway.manager
    await until(lambda: not manager.gate.n_active)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_reader_gets_its_last_byte_before_the_gateway_is_drained(stream: bool) -> None:
    async with rig(with_scheduler=False, with_socket=True, max_length=100_000, handover_s=LONG_S) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        reader = SlowReader(r, "/v1/completions", prompt=[1, 2], stream=stream)
        await until(lambda: scheduler.running)
        r.gateway.drain(LONG_S)
        await everything_computed(r, scheduler)
        for _ in range(4):
            await reader.read(4000)
            await looked(r)
            assert not is_drained(r), "its client has read a part only"
        await reader.read_to(b"0\r\n\r\n" if stream else b"}}}")
        await until(lambda: is_drained(r))
        if not stream:
            answer = json.loads(reader.got.split(b"\r\n\r\n", 1)[1])
            assert answer["choices"][0]["text"] == ids_text(oracle([1, 2], N_TOKENS))
        reader.close()


@pytest.mark.parametrize(("handover_s", "deadline_s"), [(LONG_S, 9 * LONG_S), (9 * LONG_S, LONG_S)])
async def test_a_client_that_does_not_read_holds_a_drain_for_a_bounded_time(
    handover_s: float, deadline_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(with_scheduler=False, with_socket=True, max_length=100_000, handover_s=handover_s) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        reader = SlowReader(r, "/v1/completions", prompt=[1, 2])
        await everything_computed(r, scheduler)
        r.gateway.drain(deadline_s)
        await looked(r)
        assert not is_drained(r)
        began_s, now_s = r.gateway.now_s(), r.gateway.now_s
        monkeypatch.setattr(r.gateway, "now_s", lambda: began_s + 10_000 * (now_s() - began_s))
        await until(lambda: is_drained(r))
        reader.close()


async def test_a_client_that_hangs_up_is_not_waited_for() -> None:
    async with rig(with_scheduler=False, with_socket=True, max_length=100_000, handover_s=LONG_S) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        reader = SlowReader(r, "/v1/completions", prompt=[1, 2])
        await everything_computed(r, scheduler)
        r.gateway.drain(LONG_S)
        await looked(r)
        assert not is_drained(r)
        reader.close()
        await until(lambda: is_drained(r))


async def test_a_zmq_client_that_comes_back_during_a_drain_gets_its_tail_first() -> None:
    async with zmq_rig(2, handover_s=LONG_S) as (r, (one, two)):
        scheduler = await receive_four_of_eight(r, one)
        one.close()
        r.gateway.drain(LONG_S)
        await everything_computed(r, scheduler)
        await looked(r)
        assert not is_drained(r), "its client may come back"
        await two.send(generate(have=4))
        assert isinstance(await two.receive(), public.Accepted)
        assert await two.receive_tokens(4) == oracle([1, 2], 8)[4:]
        assert isinstance(await two.receive(), public.Finished)
        await two.send(public.Received(request="r", up_to=8))
        assert await two.is_silent()
        await looked(r)
        assert not is_drained(r), "the ending is not confirmed"
        await two.send(public.Received(request="r", up_to=9))
        await until(lambda: is_drained(r))


async def test_a_client_that_does_not_come_back_is_waited_for_only_so_long_and_keeps_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with zmq_rig(2, handover_s=LONG_S) as (r, (one, two)):
        scheduler = await r.add_scheduler(is_automatic=False)
        await one.send(generate())
        await everything_computed(r, scheduler)
        one.close()
        r.gateway.drain(9 * LONG_S)
        await looked(r)
        assert not is_drained(r)
        now_s = r.gateway.now_s
        monkeypatch.setattr(r.gateway, "now_s", lambda: now_s() + LONG_S)
        await until(lambda: is_drained(r))
        await two.send(generate())
        assert isinstance(await two.receive(), public.Accepted)
        assert await two.receive_tokens(8) == oracle([1, 2], 8)


async def test_the_client_library_confirms_the_end_and_a_cancelled_request_owes_nothing() -> None:
    async with zmq_rig(1, handover_s=LONG_S) as (r, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        whole = asyncio.ensure_future(client.generate([1, 2], max_tokens=8, sampling=GREEDY))
        await everything_computed(r, scheduler)
        await whole
        manager = r.gateway.manager
        await until(lambda: not manager.finished.undelivered.n_pending(r.gateway.now_s()))
        pieces = client.stream(tokens=[6], max_tokens=100, sampling=GREEDY)
        first = asyncio.ensure_future(anext(pieces))
        await until(lambda: scheduler.running)
        scheduler.step(2)
        await first
        await pieces.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await until(lambda: not manager.gate.n_active)
        r.gateway.drain(LONG_S)
        await r.cluster.settle()
        assert is_drained(r)
