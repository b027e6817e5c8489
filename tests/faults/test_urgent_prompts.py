"""Urgent prompts beside a saturated real server run in steps of their own; every token is right, whoever is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S
from tests.support.workers.pulse import PULSE

# `make test` simulates it: tests/simulation/scheduling/test_urgent_steps.py
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
FLAGS = (
    *("--model", "hash-chain", "--policy", "priority", "--set", "worker.hash_chain_step_s=0.02"),
    *("--set", "worker.n_slots=8", "--set", "worker.max_step_tokens=256", "--set", "supervisor.restart_attempts=1000"),
)
N_LOW, LOW_TOKENS = 16, 300
_COUNTER = "tardigrade_scheduler_urgent_plans_total"


@pytest.fixture
def server() -> Iterator[RealServer]:
    with real_server(*FLAGS) as server:
        yield server


async def _generate(client: AsyncClient, index: int, n_prompt: int, n: int, priority: int) -> None:
    prompt = [(index * 7919 + at * 104_729) % 1000 for at in range(n_prompt)]
    async with asyncio.timeout(DEADLINE_S):
        answer = await client.generate(prompt, max_tokens=n, priority=priority, temperature=0.0)
    assert answer.tokens == hash_chain_tokens(prompt, n, 0, HASH_CHAIN_VOCABULARY)


async def _n_urgent(server: RealServer) -> float:
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        text = (await http.get(f"{server.url}/metrics")).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(_COUNTER))


async def _ask_urgent(client: AsyncClient, server: RealServer, low: list[asyncio.Task[None]], n_wanted: float) -> int:
    """Urgent prompts, one after the other, until so many plans of them ran beside others. Returns how many were asked."""
    n_asked, first = 0, 1000
    while await _n_urgent(server) < n_wanted:
        assert not all(task.done() for task in low), "nothing runs any more: nothing would run beside it"
        await _generate(client, first + n_asked, 100, 5, priority=0)
        n_asked += 1
    return n_asked


async def test_tokens_are_right_whoever_dies(server: RealServer) -> None:
    async with AsyncClient(server.zeromq) as client, PULSE.beating():
        low = [asyncio.create_task(_generate(client, index, 20, LOW_TOKENS, priority=9)) for index in range(N_LOW)]
        n_asked = await _ask_urgent(client, server, low, 4)
        for name in ("worker/0.0", "scheduler/0"):
            urgent = asyncio.create_task(_generate(client, 1000 + n_asked, 100, 40, priority=0))
            incarnation = await asyncio.to_thread(server.kill, name)
            await asyncio.to_thread(server.wait_new_incarnation, name, incarnation)
            await urgent
            n_asked += 1
        await asyncio.gather(*low)
