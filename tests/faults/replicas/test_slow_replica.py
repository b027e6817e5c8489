"""A replica of a real server becomes slow without failing: the breaker of the gateway opens, and closes after a probe."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from tests.support.real_server import real_server
from tests.support.streams import DEADLINE_S, VOCABULARY
from tests.support.workers.faulty_device import FaultyDevices

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# prompts of ten steps: few steps are too few for a late first token, because a step of half a second counts as hung
FLAGS = ("--set", "worker.hash_chain_step_s=0.01", "--set", "worker.max_step_tokens=16")
N_CLIENTS, N_LEARNT, N_TOKENS = 8, 80, 4
SLOW_FOR_S = 12.0  # then the replica has become the rule for itself


class Load:
    """Clients that ask one request after the other."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http, self.n_answers = http, 0

    async def client(self, number: int) -> None:
        turn = 0
        while True:
            turn += 1
            prompt = [number + 1, turn % 900, *([7] * 150)]
            body = {"tokens": prompt, "max_tokens": N_TOKENS, "temperature": 0}
            answer = await self._http.post("/v1/generate", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.json()["token_ids"] == hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
            self.n_answers += 1

    async def wait_answers(self, n_more: int) -> None:
        wanted = self.n_answers + n_more
        while self.n_answers < wanted:
            await asyncio.sleep(0.05)

    async def metric(self, name: str, **labels: str) -> float:
        text = (await self._http.get("/metrics")).text
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith(name + "{") and all(one in line for one in wanted)]
        return sum(float(re.sub(r".*} ", "", line)) for line in lines)


@asynccontextmanager
async def loaded(url: str) -> AsyncIterator[Load]:
    async with httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as http, asyncio.timeout(3 * DEADLINE_S):
        load = Load(http)
        clients = asyncio.gather(*(load.client(number) for number in range(N_CLIENTS)))
        try:
            yield load
        finally:
            clients.cancel()
            with pytest.raises(asyncio.CancelledError):  # or the error of a client
                await clients


async def is_opened(load: Load, n_before: float) -> bool:
    """True once the breaker has opened again; False if that does not come to pass in time."""
    try:
        async with asyncio.timeout(SLOW_FOR_S):
            while await load.metric("tardigrade_breaker_openings_total", replica="scheduler/1", why="slow") <= n_before:
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False
    return True


async def drill(url: str, devices: FaultyDevices) -> None:
    async with loaded(url) as load:
        has_opened = False
        for _ in range(5):  # on a busy machine the usual waits are long, so that what is slow is not so much longer
            await load.wait_answers(N_LEARNT)
            devices.break_it("worker/1.0", "slow")
            has_opened = await is_opened(load, 0.0)
            devices.repair("worker/1.0", "slow")
            if has_opened:
                break
        assert has_opened
        while await load.metric("tardigrade_breaker_state", replica="scheduler/1") != 0.0:
            await asyncio.sleep(0.1)
        assert await load.metric("tardigrade_balancing_choices_total", replica="scheduler/1", why="probe") >= 1.0
        await load.wait_answers(N_LEARNT)


def test_a_slow_replica_opens_its_breaker_until_a_probe_is_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = FaultyDevices(tmp_path)
    devices.plant(monkeypatch)
    with real_server("--model", "hash-chain", "--replicas", "2", *FLAGS) as server:
        asyncio.run(drill(server.url, devices))
        assert [child.incarnation for child in server.status().children if child.name == "worker/1.0"] == [1], "only slow"
        assert re.search(r"new sequences avoid a replica for a while .*why=slow", server.log())
