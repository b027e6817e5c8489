"""The end of a server while streams run: an order to drain outlives the death of who carries it out, and its exit status is
honest. Each test has a server of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from messages.client import AsyncClient
from messages.errors import ClientError
from messages.outcomes import ExitCode
from supervisor.operator.calls import ask_drain, ask_stop
from tests.support.real_server import RealServer
from tests.support.streams import DEADLINE_S, N_STREAMS, N_TOKENS, Streams
from tests.support.workers.pulse import PULSE

pytestmark = pytest.mark.timeout(600)


@asynccontextmanager
async def server_with(*more: str) -> AsyncIterator[RealServer]:
    """A hash-chain server with steps of 10 ms; the test ends it."""
    flags = [part for setting in ("worker.hash_chain_step_s=0.01", *more) for part in ("--set", setting)]
    server = await asyncio.to_thread(RealServer, "--model", "hash-chain", *flags)
    try:
        yield server
    finally:
        server.clean()


async def wait_exit(server: RealServer) -> int:
    """The exit status of the server."""
    return await asyncio.to_thread(server.process.wait, DEADLINE_S)


@pytest.mark.parametrize(
    "victims", [pytest.param(("gateway/0",), marks=pytest.mark.long), ("worker/0.0", "gateway/0", "scheduler/0")]
)
async def test_every_stream_ends_although_somebody_dies_during_the_drain(victims: tuple[str, ...]) -> None:
    async with server_with() as server:
        async with AsyncClient(server.zeromq) as client:
            streams = Streams(client)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await streams.wait_running(20)
            server.process.send_signal(signal.SIGTERM)
            for victim in victims:
                await streams.wait_running(min(map(len, streams.tokens)) + 10)
                await asyncio.to_thread(server.kill, victim)
            await work
            streams.check()
        assert await wait_exit(server) == 0, server.log()


async def test_clients_that_are_just_coming_back_get_their_tails_before_the_server_ends() -> None:
    """The gateway dies when little is left to compute: its next incarnation is done before its clients are there again."""
    async with server_with() as server, AsyncClient(server.zeromq) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        server.process.send_signal(signal.SIGTERM)
        await streams.wait_running(N_TOKENS - 40)
        with PULSE.held():  # the 40 tokens left take 4 s, so that the kill comes before the end on a busy machine too
            await asyncio.to_thread(server.kill, "gateway/0")
        await work
        streams.check()
        assert await wait_exit(server) == 0, server.log()


async def test_a_slow_reader_gets_its_last_byte_before_the_server_ends() -> None:
    async with server_with("gateway.shutdown_s=0.2", "gateway.handover_s=60") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4096)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = b'{"prompts": [%s], "max_tokens": 50, "temperature": 0}' % b", ".join([b'"x"'] * 300)
        writer.write(b"POST /v1/batch HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        async with asyncio.timeout(DEADLINE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            server.process.send_signal(signal.SIGTERM)
            n_bytes = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            answer = b""
            for _ in range(15):  # for longer than a server takes to end
                answer += await reader.readexactly(n_bytes // 20)
                await asyncio.sleep(0.2)
            assert server.process.poll() is None
            answer += await reader.readexactly(n_bytes - len(answer))
        assert len(json.loads(answer)["results"]) == 300
        assert await wait_exit(server) == 0, server.log()
        writer.close()


async def test_a_gateway_that_is_retired_during_a_drain_comes_back_and_finishes() -> None:
    async with server_with("supervisor.actor_restarts=0") as server:
        async with AsyncClient(server.zeromq) as client:
            streams = Streams(client)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await streams.wait_running(20)
            server.process.send_signal(signal.SIGTERM)
            await streams.wait_running(min(map(len, streams.tokens)) + 10)
            await asyncio.to_thread(server.kill, "gateway/0")
            await work
            streams.check()
        assert await wait_exit(server) == ExitCode.DONE, server.log()
        assert "group not restarted for now: the server continues without it" in server.log()


async def test_what_a_drain_leaves_is_told_and_goes_on_at_the_next_start() -> None:
    async with server_with("supervisor.drain_s=0.5") as server:
        async with AsyncClient(server.zeromq) as client:
            streams = Streams(client)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)), return_exceptions=True)
            await streams.wait_running(20)
            with PULSE.held():
                server.process.send_signal(signal.SIGTERM)
                assert await wait_exit(server) == ExitCode.DEADLINE, server.log()
            assert f"{N_STREAMS} answers are unfinished" in server.log()
            await asyncio.to_thread(server.start_again)
            assert not [error for error in await work if isinstance(error, ClientError)]
            streams.check()
        assert await asyncio.to_thread(server.stop) == 0, server.log()


async def test_a_server_whose_drain_is_late_waits_for_no_answer_that_cannot_go_on() -> None:
    """Each gateway passes answers of the other one on. The next start has the rest of every stream."""
    body = {"prompt": [1, 2], "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
    late = ("supervisor.drain_s=0.5", "gateway.shutdown_s=600", "supervisor.stop_s=600", "gateways=2")
    async with server_with(*late) as server, httpx.AsyncClient(timeout=DEADLINE_S) as client, PULSE.beating():
        url = f"http://127.0.0.1:{server.port}/v1/completions"

        async def read(key: str) -> str:
            text = ""
            with suppress(httpx.RemoteProtocolError):
                async with client.stream("POST", url, json=body, headers={"Idempotency-Key": key}) as answer:
                    async for piece in answer.aiter_text():
                        text += piece
                        n_read[key] = text.count("id: ")
            return text

        keys, n_read = [f"key {index}" for index in range(8)], dict[str, int]()
        work = asyncio.gather(*map(read, keys))
        async with asyncio.timeout(DEADLINE_S):
            while len(n_read) < len(keys) or min(n_read.values()) < 3:
                await asyncio.sleep(0.01)
        with PULSE.held():
            server.process.send_signal(signal.SIGTERM)
            assert await wait_exit(server) == ExitCode.DEADLINE, server.log()
        cut = await work
        assert "Exception in ASGI application" not in server.log()
        await asyncio.to_thread(server.start_again)
        for text, whole in zip(cut, await asyncio.gather(*map(read, keys)), strict=True):
            assert whole.startswith(text)
            assert "[DONE]" in whole.removeprefix(text)
        assert await asyncio.to_thread(server.stop) == 0, server.log()


async def test_an_operators_orders_outlive_the_supervisor() -> None:
    """Both orders came as messages, which the parent does not know: the next supervisor reads them."""
    async with server_with() as server:
        async with AsyncClient(server.zeromq) as client:
            streams = Streams(client)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await streams.wait_running(20)
            assert await asyncio.to_thread(ask_drain, server.run_dir, 60.0, False, DEADLINE_S) == "draining"
            with PULSE.held():  # however long the next supervisor takes, streams are not over before it hears the next order
                killed = await asyncio.to_thread(server.kill_supervisor)
                await asyncio.to_thread(server.wait_for, lambda r: r.state == "draining" and server.supervisor_pid != killed)
                assert await asyncio.to_thread(ask_stop, server.run_dir, DEADLINE_S) == "draining"
            with suppress(ProcessLookupError, AssertionError):  # on a slow machine the last answer may be complete already
                await asyncio.to_thread(server.kill_supervisor)
            await work
            streams.check()
        assert await wait_exit(server) == 0, server.log()
