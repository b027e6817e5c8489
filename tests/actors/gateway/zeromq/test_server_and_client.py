"""The ZeroMQ server and the client library over real sockets: streams, resumption, refusals, garbage."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
import zmq
import zmq.asyncio

from actors.gateway.zeromq import server
from messages import public
from messages.client import AsyncClient, Client
from messages.errors import InvalidRequest, RequestFailed, Unavailable
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.wire.arrays import int32s
from messages.wire.codec import Codec
from tests.support.gateway.fake_scheduler import FakeScheduler, ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S, until

GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private directory: socket paths have a limit."""
    with TemporaryDirectory(prefix="tg-") as folder:
        yield Path(folder)


def settings_in(place: Path, **more: object) -> dict:
    return {"zeromq_endpoint": f"ipc://{place}/zeromq-0", "journal_path": str(place / "journal"), **more}


async def test_generate_chat_models_stats(place: Path) -> None:
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = await client.generate("hello", max_tokens=5, temperature=0.0)
        assert answer.tokens == oracle(text_ids("hello"), 5)
        assert answer.text == ids_text(answer.tokens)
        assert (answer.reason, answer.n_prompt) == ("length", 5)
        chat = await client.chat([{"role": "user", "content": "hi"}], max_tokens=3, sampling=GREEDY)
        assert chat.tokens == oracle(text_ids("user: hi\nassistant: "), 3)
        assert await client.models() == ["hash-chain"]
        assert "time_to_first_token" in await client.stats()
        assert stat.S_IMODE(os.stat(place / "zeromq-0").st_mode) == 0o600
        assert stat.S_IMODE(os.stat(place / "journal").st_mode) == 0o700


async def test_sync_client(place: Path) -> None:
    async with rig(**settings_in(place)) as r:

        def talk() -> tuple[list[int], str]:
            with Client(r.settings.zeromq_endpoint) as client:
                ids = [i for piece in client.stream(tokens=[1, 2], max_tokens=4, sampling=GREEDY) for i in piece.ids]
                return ids, client.generate("ab", max_tokens=2, temperature=0.0).text

        ids, text = await asyncio.to_thread(talk)
        assert ids == oracle([1, 2], 4)
        assert text == ids_text(oracle([97, 98], 2))


async def test_logprobs_and_stop(place: Path) -> None:
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = await client.generate([1], max_tokens=3, sampling=Sampling(temperature=0.0, logprobs=2))
        logprobs = [piece.logprobs for piece in answer.pieces if piece.logprobs is not None]
        assert sum(some.n_tokens for some in logprobs) == 3
        assert answer.logprobs is not None
        assert answer.logprobs.chosen.tolist() == [value for some in logprobs for value in some.chosen.tolist()]
        assert all(len(some.top_of(i)) == 2 for some in logprobs for i in range(some.n_tokens))
        ids = oracle([9], 10)
        answer = await client.generate([9], max_tokens=10, temperature=0.0, stop=[f"{ids[4]}"])
        assert (answer.text, answer.reason) == (ids_text(ids[:4]), "stop")


async def test_cancel(place: Path) -> None:
    async with rig(with_scheduler=False, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        running = asyncio.ensure_future(client.generate([5], max_tokens=100, sampling=GREEDY, request="mine"))
        await until(lambda: scheduler.running)
        scheduler.step(3)
        await until(lambda: scheduler.acked == scheduler.sent)
        await client.cancel("mine")
        answer = await running
        assert (answer.reason, answer.tokens) == ("cancelled", oracle([5], 3))
        assert [c.why for c in scheduler.cancels] == ["client_left"]
        pieces = client.stream(tokens=[6], max_tokens=100, sampling=GREEDY)
        first = asyncio.ensure_future(anext(pieces))
        await until(lambda: scheduler.running)
        scheduler.step(2)
        await first
        await pieces.aclose()  # leaving a stream cancels it
        manager = r.gateway.manager
        await until(lambda: len(scheduler.cancels) == 2 and not manager.gate.n_active)


async def successor(r: Rig) -> None:
    """kill -9 of the gateway, then the start of the next one on the same journal."""
    incarnation = r.gateway.spawn_spec.incarnation
    await r.kill_gateway()
    for post in r.cluster.scripted.values():
        if isinstance(post, FakeScheduler):
            post.running.clear()  # a scheduler drops the attempts of a dead gateway
    await r.start_gateway(incarnation + 1)


async def test_streams_resume_at_the_next_token_after_the_gateway_died(place: Path) -> None:
    async with rig(with_scheduler=False, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        prompts = [[i, i + 1] for i in range(8)]
        answers = [asyncio.ensure_future(client.generate(p, max_tokens=30, sampling=GREEDY)) for p in prompts]
        await until(lambda: len(scheduler.running) == 8)
        for _ in range(3):
            scheduler.step(4)
            await until(lambda: scheduler.acked == scheduler.sent)
            scheduler.step(2)  # perhaps recorded, perhaps not, certainly not lost
            await successor(r)
            await until(lambda: len(scheduler.running) == 8)
        while scheduler.running:
            scheduler.step(5)
        async with asyncio.timeout(DEADLINE_S):
            for prompt, answer in zip(prompts, await asyncio.gather(*answers), strict=True):
                assert answer.tokens == oracle(prompt, 30)
                assert answer.text == ids_text(answer.tokens)


async def test_a_finished_request_is_still_told_after_the_gateway_died(place: Path) -> None:
    async with rig(with_scheduler=False, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        running = asyncio.ensure_future(client.generate([3], max_tokens=6, sampling=GREEDY, request="kept"))
        await until(lambda: scheduler.running)
        scheduler.step(6)
        await until(lambda: scheduler.acked == scheduler.sent)
        await successor(r)
        assert (await running).tokens == oracle([3], 6)
        again = await client.generate([3], max_tokens=6, sampling=GREEDY, request="kept")
        assert again.tokens == oracle([3], 6)
        assert len(scheduler.submits) == 1


async def test_refusals_name_the_field(place: Path) -> None:
    async with rig(max_length=64, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        for field, options in {
            "tokens": {"prompt": [40_000]},
            "max_tokens": {"prompt": [1], "max_tokens": 64},
            "prompt": {"prompt": "x" * 64},
            "model": {"prompt": "x", "model": "other"},
            "sampling.temperature": {"prompt": "x", "sampling": Sampling(temperature=-1.0)},
            "top_p": {"prompt": "x", "top_p": 2.0},
        }.items():
            with pytest.raises(InvalidRequest) as caught:
                await client.generate(**options)
            assert caught.value.field == field
        with pytest.raises(InvalidRequest):
            await client.generate("x", wrong=1)
        assert (await client.generate("x", max_tokens=1, temperature=0.0)).tokens == oracle([120], 1)


async def test_a_request_said_twice_under_one_id_is_computed_once(place: Path) -> None:
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        one = await client.generate("hello", request="mine", max_tokens=5)
        two = await client.generate("hello", request="mine", max_tokens=5)
        assert one.tokens == two.tokens
        assert len(r.scheduler().submits) == 1
        with pytest.raises(InvalidRequest, match="belongs to another request"):
            await client.generate("hello you", request="mine", max_tokens=5)


async def test_a_request_that_cannot_be_said_harms_no_other(place: Path) -> None:
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        for wrong in ("a\ud800", "x" * 20_000_000):
            with pytest.raises(InvalidRequest, match=r"^prompt: "):
                await client.generate(wrong)
        for wrong in ("", "r" * 257):
            with pytest.raises(InvalidRequest, match=r"^request: "):
                await client.generate("x", request=wrong)
        assert (await client.generate("x", max_tokens=1, temperature=0.0)).tokens == oracle([120], 1)
        assert client._link is not None
        assert not client._link.open_calls


async def test_failed_request_and_nobody_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(with_scheduler=False, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        failing = asyncio.ensure_future(client.generate([1], sampling=GREEDY))
        await until(lambda: scheduler.running)
        scheduler.fail(next(iter(scheduler.running)), "the page was on fire")
        with pytest.raises(RequestFailed, match="on fire"):
            await failing
    monkeypatch.setattr("messages.client.async_client.CONNECT_S", 0.05)
    async with AsyncClient(f"ipc://{place}/nothing") as client:
        with pytest.raises(Unavailable):
            await client.generate("x")


async def test_garbage_is_answered_and_changes_nothing(place: Path) -> None:
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(r.settings.zeromq_endpoint)
        codec = Codec((*public.ClientMessage.__args__, *public.GatewayMessage.__args__))
        good = codec.encode(public.Generate(request="g", sampling=GREEDY, prompt="x", terms=Terms(max_tokens=1)))
        alive = codec.encode(public.Alive(incarnation=1))
        wrong = msgspec.msgpack.encode({"kind": "Generate", "request": "w", "sampling": {"temperature": "hot"}})
        bad = [
            [b""],
            [b"\xc1", b""],
            [good[0]],
            [good[0][: len(good[0]) // 2], b""],
            [*good, b"more"],
            [b"\x93" * 5000, b""],
            list(alive),
            [wrong, b""],
        ]
        failed = None
        for frames in bad:
            await socket.send_multipart(frames)
            async with asyncio.timeout(DEADLINE_S):
                body, arrays = await socket.recv_multipart()
            failed = codec.decode(body, arrays)
            assert isinstance(failed, public.Failed)
            assert failed.code == "invalid"
        assert failed is not None
        assert (failed.request, failed.field) == ("w", "sampling.temperature")
        socket.close(0)
        context.term()
        assert (await client.generate("x", max_tokens=2, temperature=0.0)).tokens == oracle([120], 2)


async def test_a_client_that_does_not_confirm_stops_only_its_own_stream(place: Path) -> None:
    async with rig(stream_window_tokens=256, **settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as client:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(r.settings.zeromq_endpoint)
        codec = Codec((*public.ClientMessage.__args__, *public.GatewayMessage.__args__))
        await socket.send_multipart(
            codec.encode(public.Generate(request="slow", sampling=GREEDY, tokens=int32s([1]), terms=Terms(max_tokens=800)))
        )
        quick = await client.generate([2], max_tokens=600, sampling=GREEDY)
        assert quick.tokens == oracle([2], 600)
        ids, finished = [], None
        async with asyncio.timeout(DEADLINE_S):
            while finished is None:
                message = codec.decode(*await socket.recv_multipart())
                match message:
                    case public.Chunk():
                        ids += message.ids.tolist()
                        if len(ids) in (256, 512, 768):
                            received = public.Received(request="slow", up_to=len(ids))
                            await socket.send_multipart(codec.encode(received))
                    case public.Finished():
                        finished = message
        assert ids == oracle([1], 800)
        socket.close(0)
        context.term()


async def test_the_client_library_imports_neither_torch_nor_the_server() -> None:
    code = (
        "import sys, messages.client\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'actors', 'supervisor', 'gpu_workers')]\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 0


async def test_a_socket_that_was_removed_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BEAT_S", 0.001)
    async with rig(**settings_in(place)) as r, AsyncClient(r.settings.zeromq_endpoint) as old:
        for _ in range(2):
            (place / "zeromq-0").unlink()
            await until(lambda: (place / "zeromq-0").exists() and stat.S_IMODE(os.stat(place / "zeromq-0").st_mode) == 0o600)
            async with AsyncClient(r.settings.zeromq_endpoint) as new:
                for client in (old, new):
                    answer = await client.generate("hello", max_tokens=5, temperature=0.0)
                    assert answer.tokens == oracle(text_ids("hello"), 5)
