"""The ZeroMQ server when a client falls silent, when a call fails inside, and when a message cannot be decoded."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import warnings
from typing import Any

import msgspec
import pytest

from actors.gateway.zeromq import clients, server
from actors.gateway.zeromq.parse import field_in, request_in
from messages import public
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.zmq_clients import generate, receive_four_of_eight, zmq_rig
from tests.support.waiting import DEADLINE_S, next_turn


async def test_a_client_that_falls_silent_is_detached_and_can_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BEAT_S", 0.001)
    async with zmq_rig(2) as (r, (one, two)):
        scheduler = await receive_four_of_eight(r, one)
        request = r.gateway.manager.find("r")
        assert request is not None
        assert len(request.watchers) == 1
        monkeypatch.setattr(clients, "_CLIENT_SILENCE_S", 0.0)
        async with asyncio.timeout(DEADLINE_S):
            while request.watchers:
                await next_turn()
        assert request.orphaned_s > 0, "nobody reads it, and it waits for its client"
        monkeypatch.setattr(clients, "_CLIENT_SILENCE_S", 1000.0)
        assert scheduler.cancels == []
        await two.send(generate(have=4))
        await r.cluster.wait_until(lambda: len(request.watchers) == 1)
        scheduler.step(4)
        assert isinstance(await two.receive(), public.Accepted)
        assert await two.receive_tokens(4) == oracle([1, 2], 8)[4:]
        assert request.orphaned_s == 0


async def test_a_call_that_fails_inside_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with zmq_rig() as (r, (wire,)):

        async def broken() -> dict[str, Any]:
            raise RuntimeError("a bug")

        assert r.gateway.servers.zeromq is not None
        monkeypatch.setattr(r.gateway.servers.zeromq, "_summary", broken)
        await wire.send(public.StatsWanted(call="c"))
        failed = await wire.receive()
        assert isinstance(failed, public.Failed)
        assert (failed.request, failed.code, failed.detail) == ("c", "internal", "RuntimeError: a bug")


async def test_work_that_is_cancelled_before_it_begins_leaves_no_coroutine() -> None:
    async with zmq_rig() as (r, _):
        server = r.gateway.servers.zeromq
        assert server is not None
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            server._on_frames([b"client", *server._codec.encode(public.StatsWanted(call="c"))])
            assert [task.cancel() for task in server._tasks.running] == [True]
            while server._tasks.running:
                await next_turn()
            gc.collect()
    never_awaited = [
        text for text in (str(one.message) for one in seen) if "never awaited" in text
    ]  # not what other tests leave
    assert never_awaited == []


async def test_a_message_of_the_server_is_refused_from_a_client() -> None:
    async with zmq_rig() as (_, (wire,)):
        await wire.send(public.Accepted(request="r", n_prompt=1))
        failed = await wire.receive()
        assert isinstance(failed, public.Failed)
        assert (failed.code, failed.field) == ("invalid", "kind")
        assert failed.detail == "kind: expected a client's, got Accepted"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Expected `int`, got `str` - at `$.terms.max_tokens`", "terms.max_tokens"),
        ("Object contains unknown field `colour`", "colour"),
        ("message: kind: expected one that is known", "kind"),
        ("frames: expected 2, got 1", "frames"),
        ("no field at all", ""),
        ("", ""),
    ],
)
def test_the_field_in_a_decoders_error(text: str, field: str) -> None:
    assert field_in(text) == field


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (msgspec.msgpack.encode({"request": "r", "tokens": "wrong"}), "r"),
        (msgspec.msgpack.encode({"call": "c"}), "c"),
        (msgspec.msgpack.encode({"request": "x" * 300}), "x" * 256),
        (msgspec.msgpack.encode({"request": 7}), ""),
        (msgspec.msgpack.encode([1, 2]), ""),
        (b"\x82\xa7request\xa1r\xa6tokens\xdd\x00\x01\x00\x00" + b"\x90" * 65536, "r"),
        (b"\xc1 no msgpack", ""),
        (b"", ""),
    ],
)
def test_the_request_in_a_message_that_cannot_be_read(body: bytes, request_id: str) -> None:
    assert request_in([b"identity", body, b""]) == request_id
    assert request_in([b"identity"]) == ""


def test_junk_of_many_mebibytes_never_becomes_objects() -> None:
    tracemalloc.start()
    try:
        assert request_in([b"identity", b"\x81\xa5other\xdd\x00\x40\x00\x00" + b"\x90" * (4 << 20), b""]) == ""
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 << 20
