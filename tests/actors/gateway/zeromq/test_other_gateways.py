"""A ZeroMQ client whose gateway is gone asks another one: its request is joined, and the stream goes on at the next token."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from messages import public
from messages.client import AsyncClient
from messages.client.options import request_of
from messages.errors import Unavailable
from messages.generation.sampling import Sampling
from messages.ids import mint_request_id
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.gateway.zmq_clients import ZmqConnection, generate
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow

GREEDY = Sampling(temperature=0.0)
OTHERS_S = "actors.gateway.other_gateways.questions._OTHERS_S"


@pytest.fixture
def folder():
    with TemporaryDirectory(prefix="tg-") as path:
        yield path


@asynccontextmanager
async def gateway_of_before(folder: str, number: int) -> AsyncIterator[tuple[Rig, FakeScheduler]]:
    """The gateway with this number of a server that has more than two."""
    places: dict[str, Any] = {
        "zeromq_endpoint": f"ipc://{folder}/zeromq-{number}",
        "journal_path": f"{folder}/journal-{number}",
    }
    async with rig(with_scheduler=False, **places) as r:
        yield r, await r.add_scheduler(is_automatic=False)


@asynccontextmanager
async def connections_of(folder: str) -> AsyncIterator[list[ZmqConnection]]:
    """A bare connection to each of two gateways."""
    connections = [ZmqConnection(f"ipc://{folder}/zeromq-{index}") for index in range(2)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("number", [2, 3])  # whose journal is adopted by gateway 0 and gateway 1
async def test_a_client_of_a_gateway_that_is_gone_goes_on_at_another_one(folder: str, number: int) -> None:
    """It comes to gateway 0, which has adopted its request or asks gateway 1 for it."""
    async with AsyncClient(f"ipc://{folder}/zeromq-{number}") as client:
        async with gateway_of_before(folder, number) as (_, scheduler):
            running = asyncio.ensure_future(client.generate([5], max_tokens=12, sampling=GREEDY))
            stream = client.stream(tokens=[6], max_tokens=12, sampling=GREEDY)
            first = asyncio.ensure_future(anext(stream))
            await until(lambda: len(scheduler.running) == 2)
            scheduler.step(4)
            assert (await first).ids == oracle([6], 12)[: len(first.result().ids)]
            await until(lambda: scheduler.acked == scheduler.sent)
        async with two_gateways(folder, has_zeromq=True, gateways=2) as (_, _, scheduler):
            assert client._link is not None
            assert client._link.move()
            pieces = [first.result()]
            last = asyncio.ensure_future(_collect(stream, pieces))
            while not (running.done() and last.done()):
                scheduler.step(1)
                await asyncio.sleep(0.001)
            assert [token for piece in pieces for token in piece.ids] == oracle([6], 12)
            assert (await running).tokens == oracle([5], 12)
            assert len(scheduler.submits) == 2, "nothing is computed twice"
            assert {len(submit.tokens) for submit in scheduler.submits} == {5}, "both go on after four tokens"
            assert client._link.endpoint == f"ipc://{folder}/zeromq-0"


async def _collect(stream: Any, pieces: list[Any]) -> None:
    pieces += [piece async for piece in stream]


async def test_a_forwarded_stream_goes_on_when_the_gateway_that_has_it_is_killed(folder: str) -> None:
    async with (
        two_gateways(folder, has_zeromq=True) as (r, _, scheduler),
        connections_of(folder) as (first, _),
        AsyncClient(f"ipc://{folder}/zeromq-1") as second,
    ):
        asked = {"max_tokens": 12, "sampling": GREEDY, "request": "mine"}
        await first.send(request_of([5], None, None, asked))  # by a process that dies then
        await until(lambda: scheduler.running)
        joined = asyncio.ensure_future(second.generate([5], **asked))
        scheduler.step(4)
        await until(lambda: _n_tokens(second, "mine") == 4)
        scheduler.step(1)  # perhaps recorded, perhaps not
        assert r.gateway.servers.for_gateways is not None
        await r.gateway.servers.for_gateways.stop()
        await r.kill_gateway()
        scheduler.running.clear()  # a scheduler drops the attempts of a dead gateway
        await r.start_gateway(2)
        await until(lambda: scheduler.running)
        while not joined.done():
            scheduler.step(1)
            await asyncio.sleep(0.001)
        assert (await joined).tokens == oracle([5], 12)
        assert {submit.request for submit in scheduler.submits} == {"mine"}
        assert len(scheduler.submits) == 2
        assert (await second.generate([5], **asked)).tokens == oracle([5], 12), "a finished one is found as well"
        assert len(scheduler.submits) == 2


def _n_tokens(client: AsyncClient, request: str) -> int:
    return len(client._streams[request].state.tokens) if request in client._streams else -1


async def test_what_the_client_says_reaches_the_gateway_that_has_its_request(folder: str) -> None:
    async with (
        two_gateways(folder, has_zeromq=True, stream_window_tokens=256) as (_, _, scheduler),
        connections_of(folder) as wires,
    ):
        zero, one = wires
        await zero.send(generate(n=1000))
        assert isinstance(await zero.receive(), public.Accepted)
        await one.send(generate(n=1000, is_repeated=True))
        await until(lambda: scheduler.running)
        scheduler.step(600)
        assert isinstance(await one.receive(), public.Accepted)
        got = await one.receive_tokens(256)
        assert await one.is_silent(), "the window of its stream is full"
        await one.send(public.Received(request="r", up_to=256))
        got += await one.receive_tokens(256)
        assert got == oracle([1, 2], 1000)[:512]
        await one.send(public.CancelRequest(request="r"))
        await one.send(public.Received(request="r", up_to=512))
        ended = await _next_of(one, public.Finished)
        assert (ended.reason, ended.n_generated) == ("cancelled", 600)
        assert [cancel.why for cancel in scheduler.cancels] == ["client_left"]


async def _next_of(connection: ZmqConnection, kind: type[Any]) -> Any:
    while not isinstance(message := await connection.receive(), kind):
        pass
    return message


async def test_a_request_whose_client_left_the_forwarding_gateway_is_cancelled(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.gateway.zeromq.server._BEAT_S", 0.001)
    async with (
        two_gateways(folder, has_zeromq=True, orphan_s=0.0) as (_, second, scheduler),
        connections_of(folder) as wires,
    ):
        await wires[0].send(generate())
        assert isinstance(await wires[0].receive(), public.Accepted)
        await wires[1].send(generate(is_repeated=True))
        await until(lambda: scheduler.running)
        assert isinstance(await wires[1].receive(), public.Accepted)
        for client in second.gateway.servers.zeromq._clients._clients.values():
            client.heard_s -= 3600.0
        await until(lambda: scheduler.cancels)


async def test_a_client_that_has_gone_from_the_forwarding_gateway_to_the_right_one_keeps_its_request(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.gateway.zeromq.server._BEAT_S", 0.001)
    async with (
        two_gateways(folder, has_zeromq=True, orphan_s=0.0) as (_, second, scheduler),
        connections_of(folder) as wires,
    ):
        zero, one = wires
        for request in ("r", "other"):
            await zero.send(generate(request=request, n=8))
            assert isinstance(await _next_of(zero, public.Accepted), public.Accepted)
        await until(lambda: len(scheduler.running) == 2)
        await one.send(generate(n=8, is_repeated=True))
        await _next_of(one, public.Accepted)
        await zero.send(generate(n=8, is_repeated=True))  # the client goes to the gateway that has its request
        await _next_of(zero, public.Accepted)
        forwarding = second.gateway.servers.zeromq._clients._clients
        for client in forwarding.values():
            client.heard_s -= 3600.0
        await until(lambda: not forwarding)
        await one.send(generate(request="other", n=8, is_repeated=True))
        await _next_of(one, public.Accepted)  # so the owner has read all that the other gateway has said before
        assert not scheduler.cancels
        scheduler.step(8)
        ended = await _next_of(zero, public.Finished)
        assert (ended.request, ended.reason) == ("r", "length")


async def test_an_id_that_nobody_knows_is_a_new_request_and_a_position_in_it_is_refused(folder: str) -> None:
    async with two_gateways(folder, has_zeromq=True) as (_, _, scheduler), connections_of(folder) as (_, one):
        await one.send(generate(is_repeated=True, have=3))
        failed = await one.receive()
        assert isinstance(failed, public.Failed)
        assert (failed.code, failed.field) == ("not_found", "request")
        await one.send(generate(is_repeated=True))
        assert isinstance(await one.receive(), public.Accepted)
        await until(lambda: scheduler.running)


async def test_while_a_gateway_that_may_have_it_is_away_an_accepted_request_waits_and_another_is_refused(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OTHERS_S, 0.01)
    monkeypatch.setattr("messages.client.async_client._RETRY_S", 0.01)
    endpoints = [f"ipc://{folder}/zeromq-{index}" for index in range(2)]
    async with two_gateways(folder, has_zeromq=True) as (r, second, scheduler), AsyncClient(endpoints) as client:
        running = asyncio.ensure_future(client.generate([5], max_tokens=8, sampling=GREEDY))
        await until(lambda: scheduler.running)
        scheduler.step(4)
        await until(lambda: scheduler.acked == scheduler.sent)
        await asyncio.to_thread(os.unlink, r.settings.http_sockets[0])  # a dead process accepts nothing
        assert r.gateway.servers.for_gateways is not None
        await r.kill_gateway()
        await r.gateway.servers.for_gateways.stop()
        scheduler.running.clear()
        assert client._link is not None
        assert client._link.move()
        await until(lambda: second.gateway.metrics.refused.labels("unavailable")._value.get() > 2)
        with pytest.raises(Unavailable, match="another gateway of this server"):
            await client.generate([7], max_tokens=1, sampling=GREEDY, request="given")
        assert not running.done()
        await r.start_gateway(2)
        await until(lambda: scheduler.running)
        while not running.done():
            scheduler.step(1)
            await asyncio.sleep(0.001)
        assert (await running).tokens == oracle([5], 8)


async def test_a_request_that_nobody_has_accepted_begins_at_the_next_gateway_when_the_first_is_away(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OTHERS_S, 0.01)
    async with two_gateways(folder, has_zeromq=True) as (r, _, scheduler), connections_of(folder):
        await asyncio.to_thread(os.unlink, r.settings.http_sockets[0])
        async with AsyncClient([f"ipc://{folder}/zeromq-{index}" for index in range(2)]) as client:
            await client.models()
            assert client._link is not None
            monkeypatch.setattr(client._link._reader, "send", lambda frames: False)  # it hangs: nothing reaches it
            running = asyncio.ensure_future(client.generate([5], max_tokens=1, sampling=GREEDY))
            await until(lambda: client._link is not None and client._link.open_calls)
            monkeypatch.undo()
            monkeypatch.setattr(OTHERS_S, 0.01)
            assert client._link.move()
            await until(lambda: scheduler.running)
            scheduler.step(1)
            assert (await running).tokens == oracle([5], 1)


async def test_a_client_whose_first_gateway_never_answers_asks_the_next_one(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messages.client.async_client.CONNECT_S", 0.05)
    async with rig(zeromq_endpoint=f"ipc://{folder}/zeromq-1"), AsyncClient(f"ipc://{folder}/zeromq-0") as client:
        async with asyncio.timeout(DEADLINE_S):
            while not await _is_connected(client):  # on a slow machine the second gateway may take longer as well
                pass
        assert (await client.generate([5], max_tokens=3, sampling=GREEDY)).tokens == oracle([5], 3)


async def _is_connected(client: AsyncClient) -> bool:
    try:
        return await client.models() == ["hash-chain"]
    except Unavailable:
        return False


def test_ids_of_the_client_are_not_asked_for_elsewhere_the_first_time() -> None:
    assert not request_of([1], None, None, {}).is_repeated
    assert request_of([1], None, None, {"request": mint_request_id()}).is_repeated
