"""Kills of every actor while pages move between two replicas: every answer is right."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.ids import role_of
from messages.lifecycle.tree import StatusReport
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
_ROLES = ("worker", "vault", "cache_directory", "gateway", "supervisor", "worker", "scheduler")
_N_CLIENTS, _N_PROMPTS, _N_TOKENS = 40, 24, 12
_MOVED = 10  # pages that move between two kills, before the first scheduler dies: the next one borrows nothing for a while
_SETS = (
    "scheduler.tier_loads=always",
    "worker.exchange_bytes=16KiB",
    "worker.hash_chain_pages=200",
    "worker.hash_chain_step_s=0.002",
    "supervisor.gang_restarts=100000",
    "supervisor.actor_restarts=100000",
    "supervisor.restart_attempts=1000",
)


class _Killer:
    """Kills a process of each role, one after the other. Pages move before each kill but that of the last scheduler."""

    def __init__(self, server: RealServer) -> None:
        self._server, self._chance = server, random.Random(3)
        self.is_over = False

    def run(self) -> None:
        try:
            for role in _ROLES:
                self._await_moves()
                if role == "supervisor":
                    os.kill(self._server.supervisor_pid, signal.SIGKILL)
                else:
                    names = [child.name for child in self._server.status().children if role_of(child.name) == role]
                    self._server.kill(self._chance.choice(names))
            self._server.wait_serving()
        finally:
            self.is_over = True

    def _await_moves(self) -> None:
        """Wait until pages have moved from now on."""
        first: list[float] = []

        def has_moved(report: StatusReport) -> bool:
            told = [child.statistics for child in report.children if role_of(child.name) == "scheduler"]
            if report.state != "serving" or not all("exchange_moved" in one for one in told):
                return False
            n_moved = sum(one["exchange_moved"] for one in told)
            first.append(n_moved)
            return n_moved >= first[0] + _MOVED

        self._server.wait_for(has_moved)


def _prompt(number: int) -> list[int]:
    """More pages than a replica has, in all prompts together."""
    return [(number * 7919 + index * 104_729) % 1000 + 100 for index in range(10 * PAGE_TOKENS + 1)]


async def _follow(client: AsyncClient, rng: random.Random, killer: _Killer) -> int:
    """Check one answer after another until the killer has ended; returns how many."""
    n_right = 0
    while not killer.is_over:
        prompt = _prompt(rng.randrange(_N_PROMPTS))
        answer = await client.generate(prompt, max_tokens=_N_TOKENS, temperature=0.0, ignore_eos=True, deadline_s=DEADLINE_S)
        assert list(answer.tokens) == hash_chain_tokens(prompt, _N_TOKENS, 0, VOCABULARY)
        n_right += 1
    return n_right


@pytest.fixture
def server() -> Iterator[RealServer]:
    flags = ("--model", "hash-chain", "--max-length", "256", "--replicas", "2")
    with real_server(*flags, *(part for each in _SETS for part in ("--set", each))) as server:
        yield server


async def test_kills_of_every_actor_while_pages_move(server: RealServer) -> None:
    killer = _Killer(server)
    work = asyncio.ensure_future(asyncio.to_thread(killer.run))
    async with AsyncClient(server.zeromq) as client:
        right = await asyncio.gather(*(_follow(client, random.Random(number), killer) for number in range(_N_CLIENTS)))
    await work
    assert min(right) >= 1
    print(f"{sum(right)} answers")
