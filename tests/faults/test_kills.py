"""kill -9 and freeze of every kind of process while 32 streams run: each stream ends with exactly the oracle's tokens.

The hash chain makes any loss, repeat or wrong prefix visible; an artificial step time keeps the streams running while the
process dies, and each test checks that they were.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S, N_STREAMS, N_TOKENS, VOCABULARY, Streams
from tests.support.workers.pulse import PULSE

pytestmark = pytest.mark.timeout(600)
OWNERS = ("worker/0.0", "scheduler/0", "gateway/0")  # of what a stream is made of
LONG_PROMPT_TOKENS = 1500
OTHERS = ("cache_directory/0", "speculation/0")
ROLES = (*OWNERS, *OTHERS)


FLAGS = [
    "worker.hash_chain_step_s=0.01",
    "supervisor.frozen_s=2.0",
    "supervisor.gang_restarts=100",
    "supervisor.actor_restarts=100",
]


def slow_server(*flags: str) -> AbstractContextManager[RealServer]:
    return real_server(*WITH_SPARES, "--model", "hash-chain", *(part for flag in (*FLAGS, *flags) for part in ("--set", flag)))


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with slow_server() as server:
        yield server


@pytest.fixture
def coalescing_server() -> Iterator[RealServer]:
    with slow_server("gateway.answer_coalescing=true") as server:
        yield server


Fault = tuple[int, tuple[str, ...], signal.Signals]  # when all streams have so many tokens (0: amid the prompts), who, how


async def run_with(server: RealServer, faults: list[Fault], salt: int = 0) -> None:
    """All streams, and each fault at its time; every victim must come back as a new incarnation."""
    await asyncio.to_thread(server.wait_serving)
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client, salt, LONG_PROMPT_TOKENS if salt else 0)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        hit: dict[str, int] = {}  # name -> the last incarnation that was hit
        for n_tokens, names, how in faults:
            await (streams.wait_running(n_tokens) if n_tokens else streams.wait_prefilling())
            with PULSE.held():  # to ask who is to be killed takes seconds on a busy machine: no stream is over before that
                for name in names:
                    hit[name] = await asyncio.to_thread(server.kill, name, how, hit.get(name, 0))
            streams.assert_cut()
        await work
        streams.check()
    for name, incarnation in hit.items():
        await asyncio.to_thread(server.wait_new_incarnation, name, incarnation)


@pytest.mark.long  # `make test` kills each of them amid streams one after the other
@pytest.mark.parametrize("name", OWNERS)
async def test_kill_while_streams_run(server: RealServer, name: str) -> None:
    await run_with(server, [(20, (name,), signal.SIGKILL)])


@pytest.mark.parametrize("name", OWNERS)
async def test_kill_at_the_first_token(server: RealServer, name: str) -> None:
    await run_with(server, [(1, (name,), signal.SIGKILL)])


@pytest.mark.parametrize("name", OWNERS)
async def test_kill_amid_the_prompts(server: RealServer, name: str) -> None:
    await run_with(server, [(0, (name,), signal.SIGKILL)], salt=1 + OWNERS.index(name))


@pytest.mark.parametrize("name", ["worker/0.0", *(pytest.param(name, marks=pytest.mark.long) for name in OWNERS[1:])])
async def test_kill_of_the_next_incarnation_before_it_has_begun(server: RealServer, name: str) -> None:
    await run_with(server, [(20, (name, name, name), signal.SIGKILL)])


@pytest.mark.parametrize(
    "names",
    [
        *(pytest.param(some, marks=pytest.mark.long) for some in (("worker/0.0", "gateway/0"), ("scheduler/0", OTHERS[0]))),
        ROLES,
    ],
)
async def test_kill_of_several_at_once(server: RealServer, names: tuple[str, ...]) -> None:
    await run_with(server, [(20, names, signal.SIGKILL)])


@pytest.mark.parametrize("names", [*(pytest.param((name,), marks=pytest.mark.long) for name in OWNERS), OTHERS])
async def test_freeze_while_streams_run(server: RealServer, names: tuple[str, ...]) -> None:
    await run_with(server, [(20, names, signal.SIGSTOP)])


async def test_freeze_of_each_owner_one_after_the_other(server: RealServer) -> None:
    await run_with(server, [(10 + 40 * at, (name,), signal.SIGSTOP) for at, name in enumerate(OWNERS)])


async def test_freeze_amid_the_prompts(server: RealServer) -> None:
    await run_with(server, [(0, ("worker/0.0", "scheduler/0"), signal.SIGSTOP)], salt=9)


async def test_kill_of_everything_one_after_the_other(server: RealServer) -> None:
    await run_with(server, [(10 + 30 * at, (name,), signal.SIGKILL) for at, name in enumerate(ROLES)])


async def test_plain_http_streams_survive_worker_and_scheduler(server: RealServer) -> None:
    await asyncio.to_thread(server.wait_serving)
    body = {"prompt": [5, 6, 7], "max_tokens": N_TOKENS, "temperature": 0, "stream": True, "model": "hash-chain"}
    text, kills = "", ["worker/0.0", "scheduler/0"]
    async with (
        httpx.AsyncClient(timeout=DEADLINE_S) as http,
        http.stream("POST", f"{server.url}/v1/completions", json=body) as reply,
        PULSE.beating(),
    ):
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                text += httpx.Response(200, content=line[6:]).json()["choices"][0]["text"]
                if kills and text.count(" ") > 60 * (3 - len(kills)):
                    await asyncio.to_thread(server.kill, kills.pop(0))
    assert not kills
    assert [int(word) for word in text.split()] == hash_chain_tokens([5, 6, 7], N_TOKENS, 0, VOCABULARY)


async def test_whole_answers_over_http_survive_worker_and_scheduler(server: RealServer) -> None:
    """Their tokens come to the gateway in groups: what a scheduler had not told is computed again."""
    await asyncio.to_thread(server.wait_serving)
    prompts = [[7, 7, index] for index in range(N_STREAMS)]
    body = {"tokens": prompts, "max_tokens": N_TOKENS, "temperature": 0}
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http, PULSE.beating():

        async def shown() -> int:
            return (await http.get(f"{server.url}/v1/metrics")).json()["inter_token"]["count"]

        before = await shown()
        answer = asyncio.ensure_future(http.post(f"{server.url}/v1/batch", json=body))
        for nth, name in enumerate(("worker/0.0", "scheduler/0", "worker/0.0")):
            async with asyncio.timeout(DEADLINE_S):
                while await shown() - before < N_STREAMS * 40 * (nth + 1):
                    assert not answer.done(), "every answer is over already: nothing would be killed"
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(server.kill, name)
            assert not answer.done()
        results = (await answer).json()["results"]
    assert [r["tokens"] for r in results] == [hash_chain_tokens(p, N_TOKENS, 0, VOCABULARY) for p in prompts]


async def test_kills_while_equal_streams_are_computed_once(coalescing_server: RealServer) -> None:
    """Two groups of equal streams. The client of the one that is computed for the first group leaves, then processes die."""
    async with AsyncClient(coalescing_server.zeromq) as client, httpx.AsyncClient() as http:
        alone, streams = (Streams(client, n_alike=N_STREAMS // 2) for _ in range(2))
        leader = asyncio.ensure_future(alone.follow(0))
        async with asyncio.timeout(DEADLINE_S):
            while not alone.tokens[0]:
                await asyncio.sleep(0.001)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        leader.cancel()
        figures = (await http.get(f"{coalescing_server.url}/metrics")).text
        assert re.search(rf"tardigrade_coalesced_requests_total\{{[^}}]*\}} {N_STREAMS - 1}\.0", figures)
        for n_tokens, name in ((50, "worker/0.0"), (90, "scheduler/0"), (130, "gateway/0")):
            await streams.wait_running(n_tokens)
            with PULSE.held():
                await asyncio.to_thread(coalescing_server.kill, name)
            streams.assert_cut()
        await work
        streams.check()
