"""Processes that can open no more files while clients read: running answers go on byte for byte, also when other processes are
killed meanwhile, new connections are refused, and all of it is said. The limit of a process cannot be raised again here."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable

import pytest

from tests.support.http_answers import PAGE_FLAGS, HttpAnswer, answers, wait_events, wait_held
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S

pytestmark = pytest.mark.timeout(600)
N_TOKENS = 200
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01", *PAGE_FLAGS)
FEW = 20  # fewer files than each process has open
OUT_OF_FILES = "too few file descriptors are free: new connections are refused"

Faults = Callable[[list[HttpAnswer]], Awaitable[None]]


async def run_with(server: RealServer, run: str, faults: Faults | None = None, n_tokens: int = N_TOKENS) -> dict[str, bytes]:
    """All answers, and the faults meanwhile; returns what each client has read."""
    all_answers = answers(run, n_tokens)
    async with asyncio.TaskGroup() as group:
        for one in all_answers:
            group.create_task(one.follow("127.0.0.1", server.port))
        if faults is not None:
            await faults(all_answers)
    return {one.name.removeprefix(run): one.plain() for one in all_answers}


def limit(server: RealServer, name: str) -> None:
    """From now on this process can open no file."""
    resource.prlimit(server.child(name).pid, resource.RLIMIT_NOFILE, (FEW, FEW))


async def wait_said(server: RealServer, text: str, n: int = 1) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while server.log().count(text) < n:
            await asyncio.sleep(0.01)


async def new_answer(server: RealServer) -> bytes:
    """What a new connection is told about health."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer


def test_a_gateway_that_can_open_no_file_goes_on_and_refuses_new_connections() -> None:
    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 3)
        await asyncio.to_thread(limit, server, "gateway/0")
        await wait_said(server, OUT_OF_FILES)
        for _ in range(20):
            answer = await new_answer(server)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"too few file descriptors are free" in answer
        for name in ("custodian/0", "scheduler/0", "worker/0.0"):  # each next one is linked to the gateway
            await asyncio.to_thread(server.kill, name)
            await asyncio.to_thread(server.wait_new_incarnation, name, 1)

    with real_server(*FLAGS) as server:
        calm = asyncio.run(run_with(server, "calm"))
        assert asyncio.run(run_with(server, "less", faults)) == calm
        assert server.child("gateway/0").incarnation == 1


def test_a_custodian_that_can_open_no_file_is_replaced_and_holds_everything() -> None:
    """The answers last longer than it takes until the next custodian has all connections."""

    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 3)
        await asyncio.to_thread(limit, server, "custodian/0")
        await wait_held(server, len(running), after=1)
        await asyncio.to_thread(server.kill, "gateway/0")

    with real_server(*FLAGS) as server:
        calm = asyncio.run(run_with(server, "calm", n_tokens=3 * N_TOKENS))
        assert asyncio.run(run_with(server, "less", faults, 3 * N_TOKENS)) == calm
        assert OUT_OF_FILES in server.log()
