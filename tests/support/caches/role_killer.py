"""Kills of one process of each role, one after the other, amid clients whose prompts do not all fit on a device."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Sequence

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.ids import role_of
from messages.steps import PAGE_TOKENS
from tests.support.real_server import RealServer
from tests.support.streams import DEADLINE_S, VOCABULARY

N_PROMPTS, N_TOKENS = 24, 12
EVERY_ROLE = ("worker", "scheduler", "vault", "gateway", "custodian", "cache_directory", "speculation", "supervisor")
UNBOUNDED_RESTARTS = (  # settings, because tests kill more often than any fault does
    "supervisor.gang_restarts=100000",
    "supervisor.actor_restarts=100000",
    "supervisor.restart_attempts=1000",
)


class RoleKiller:
    """`before_each`: is called before each kill, and waits until what is tested has happened; `at_end`: after the last one.
    `n_prompts`: among so many prompts the clients choose, which `before_each` may change."""

    def __init__(
        self, server: RealServer, roles: Sequence[str], before_each: Callable[[], None], at_end: Callable[[], object]
    ) -> None:
        self._server, self._roles, self._chance = server, roles, random.Random(3)
        self._before_each, self._at_end = before_each, at_end
        self.is_over = False
        self.n_prompts = N_PROMPTS

    def run(self) -> None:
        """Kill all of them."""
        try:
            for role in self._roles:
                self._before_each()
                if role == "supervisor":
                    os.kill(self._server.supervisor_pid, signal.SIGKILL)
                else:
                    names = [child.name for child in self._server.status().children if role_of(child.name) == role]
                    self._server.kill(self._chance.choice(names))
            self._at_end()
        finally:
            self.is_over = True


async def answers_amid_kills(server: RealServer, killer: RoleKiller, n_clients: int) -> list[int]:
    """Clients that ask until all kills are done, and check each answer. Returns how many each of them got."""
    work = asyncio.ensure_future(asyncio.to_thread(killer.run))
    async with AsyncClient(server.zeromq) as client:
        right = await asyncio.gather(*(_follow(client, random.Random(number), killer) for number in range(n_clients)))
    await work
    return right


async def _follow(client: AsyncClient, rng: random.Random, killer: RoleKiller) -> int:
    n_right = 0
    while not killer.is_over:
        prompt = _prompt(rng.randrange(killer.n_prompts))
        answer = await client.generate(prompt, max_tokens=N_TOKENS, temperature=0.0, ignore_eos=True, deadline_s=DEADLINE_S)
        assert list(answer.tokens) == hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
        n_right += 1
    return n_right


def _prompt(number: int) -> list[int]:
    """Ten pages, and a token more."""
    return [(number * 7919 + index * 104_729) % 1000 + 100 for index in range(10 * PAGE_TOKENS + 1)]
