"""A step that never ends is noticed by its gang's expected times, in whatever situation it hangs, and the streams go on.

The hang is planted by the test; the server has its usual limits, of which those for unknown steps are minutes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY
from tests.support.workers.faulty_device import FaultyDevices

pytestmark = pytest.mark.timeout(600)
WORKER = "worker/0.0"
NOTICED_S = 60.0  # generous: about 1.5 s on a machine that does nothing else
N_TOKENS, N_BEFORE = 900, 550  # the step after 512 tokens has a shape that this gang has not computed


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> FaultyDevices:
    return FaultyDevices(tmp_path_factory.mktemp("devices"))


@pytest.fixture(scope="module")
def server(devices: FaultyDevices) -> Iterator[RealServer]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        devices.plant(monkeypatch)
        with real_server("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.002") as server:
            yield server


@asynccontextmanager
async def hang(server: RealServer, devices: FaultyDevices) -> AsyncIterator[None]:
    """Steps hang until the gang has been replaced. The body begins a step, or waits for nothing."""
    before = (await asyncio.to_thread(server.child, WORKER)).incarnation
    devices.break_it(WORKER, "hang")
    began_s = time.monotonic()
    yield
    await asyncio.to_thread(
        server.wait_for, lambda r: any(c.name == WORKER and c.incarnation > before for c in r.children), NOTICED_S
    )
    print(f"a hung step was noticed after {time.monotonic() - began_s:.2f} s")
    devices.repair(WORKER, "hang")


async def ask(client: AsyncClient, prompt: list[int], n: int) -> None:
    tokens = list[int]()
    async for piece in client.stream(tokens=prompt, max_tokens=n, temperature=0.0, deadline_s=DEADLINE_S):
        tokens += piece.ids
    assert tokens == hash_chain_tokens(prompt, n, 0, VOCABULARY)


@pytest.mark.parametrize(
    ("prompt_before", "prompt"),
    [([], [1, 2, 3]), ([4] * 40, [4] * 40), ([5] * 40, [5] * 600)],
    ids=["first step of a gang", "a prompt again", "a longer prompt"],
)
async def test_a_prompt_that_hangs(
    server: RealServer, devices: FaultyDevices, prompt_before: list[int], prompt: list[int]
) -> None:
    await asyncio.to_thread(server.wait_serving)
    async with AsyncClient(server.zeromq) as client:
        if prompt_before:
            await ask(client, prompt_before, 100)
        async with hang(server, devices):
            answer = asyncio.create_task(ask(client, prompt, 20))
        await answer


async def test_a_stream_that_hangs_beyond_what_its_gang_has_computed(server: RealServer, devices: FaultyDevices) -> None:
    await asyncio.to_thread(server.wait_serving)
    prompt, tokens = [6] * 20, list[int]()
    async with AsyncClient(server.zeromq) as client:
        stream = client.stream(tokens=prompt, max_tokens=N_TOKENS, temperature=0.0, deadline_s=DEADLINE_S)
        async for piece in stream:
            is_there = len(tokens) < N_BEFORE <= len(tokens) + len(piece.ids)
            tokens += piece.ids
            if is_there:
                async with hang(server, devices):
                    pass
    assert tokens == hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
