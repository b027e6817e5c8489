"""Kills of every actor while pages are evicted to the host cache and come back: every answer is right."""

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
from messages.lifecycle.tree import ChildStatus, StatusReport
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
_ROLES = ("worker", "scheduler", "vault", "gateway", "custodian", "cache_directory", "speculation", "supervisor")
_N_CLIENTS, _N_PROMPTS, _N_TOKENS = 8, 24, 12
_DEVICE_PAGES = 60
_ROUNDS = 3
_LOADED = 10  # pages that come back between two kills
_BUDGETS = ("supervisor.gang_restarts=100000", "supervisor.actor_restarts=100000", "supervisor.restart_attempts=1000")
_SETS = ("scheduler.tier_loads=always", f"worker.hash_chain_pages={_DEVICE_PAGES}", "worker.hash_chain_step_s=0.002")


class _Killer:
    """Kills a process of each role, one after the other. Between two kills pages come back from the tier."""

    def __init__(self, server: RealServer) -> None:
        self._server, self._chance = server, random.Random(3)
        self.n_loaded = self.n_failed = 0.0  # as far as the schedulers have told
        self._told = [0.0, 0.0]  # both, since the last kill
        self.is_over = False

    def run(self) -> None:
        try:
            for role in _ROLES * _ROUNDS:
                self._await_loads()
                if role == "supervisor":
                    os.kill(self._server.supervisor_pid, signal.SIGKILL)
                else:
                    names = [child.name for child in self._server.status().children if role_of(child.name) == role]
                    self._server.kill(self._chance.choice(names))
            self._await_loads()
        finally:
            self.is_over = True

    def _await_loads(self) -> None:
        """Wait until one scheduler has let pages come back from now on."""
        first: dict[int, ChildStatus] = {}  # by incarnation

        def has_loaded(report: StatusReport) -> bool:
            for child in report.children:
                if child.name == "scheduler/0" and "host_loaded" in child.statistics:
                    begun = first.setdefault(int(child.incarnation), child)
                    self._told = [child.statistics[name] - begun.statistics[name] for name in ("host_loaded", "host_failed")]
                    return report.state == "serving" and self._told[0] >= _LOADED
            return False

        self._server.wait_for(has_loaded)
        self.n_loaded, self.n_failed = self.n_loaded + self._told[0], self.n_failed + self._told[1]


def _prompt(number: int) -> list[int]:
    """More pages than the device has, in all prompts together."""
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


_FLAGS = {
    "standby": ("--standby", "--host-cache", "64KiB"),
    "vault": ("--vault", "--host-cache", "64KiB"),
    "adaptive": (
        "--vault",
        "--host-cache",
        "20KiB",
        "--host-cache-dtype",
        "adaptive",
    ),  # 264 places for 240 pages, or 160 as they are
}


@pytest.fixture(params=list(_FLAGS))
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    flags = ("--model", "hash-chain", "--max-length", "256", *_FLAGS[request.param])
    with real_server(*flags, *(part for each in (*_SETS, *_BUDGETS) for part in ("--set", each))) as server:
        yield server


async def test_kills_of_every_actor_while_pages_come_back(server: RealServer) -> None:
    killer = _Killer(server)
    work = asyncio.ensure_future(asyncio.to_thread(killer.run))
    async with AsyncClient(server.zeromq) as client:
        right = await asyncio.gather(*(_follow(client, random.Random(number), killer) for number in range(_N_CLIENTS)))
    await work
    assert min(right) >= 1
    assert killer.n_loaded >= _LOADED * len(_ROLES) * _ROUNDS
    assert killer.n_failed < killer.n_loaded / 2, "most pages outlive the deaths of ranks and schedulers"
    print(f"{sum(right)} answers, {killer.n_loaded} pages loaded, {killer.n_failed} failed")
