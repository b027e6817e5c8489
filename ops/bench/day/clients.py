"""The clients of a long run: each asks, reads the answer, thinks, and asks again. They never repeat a request that failed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.hash_chain import HASH_CHAIN_VOCABULARY
from ops.bench.campaign.zmq_streams import follow_zmq
from ops.bench.day.visits import Death, Visit, note_gaps, visit_of
from supervisor.drill.figures import outcome_of
from supervisor.drill.streams import DrillStream, StreamRequest, follow, prompts_of

_LEAST_TOKENS = 8


@dataclass(frozen=True)
class Tenant:
    """One tenant and its API key. `think_s`: the mean time between an answer and the next question of each of its clients."""

    name: str
    key: str
    n_clients: int
    think_s: float


class DayClients:
    """All clients of all tenants. Every third one speaks ZeroMQ. `options.max_tokens`: of the longest answer.

    `is_chain`: the model is the hash chain, whose tokens are known; of other models only the completeness is judged.
    """

    def __init__(
        self, options: StreamRequest, endpoints: Sequence[str], tenants: Sequence[Tenant], is_chain: bool, seed: int
    ) -> None:
        self._options, self._endpoints, self._tenants = options, endpoints, tenants
        self._is_chain, self._seed = is_chain, seed
        self.visits: list[Visit] = []

    async def run(self, until_s: float, deaths: Callable[[], Sequence[Death]]) -> None:
        """Ask until this time of the monotonic clock, and read the last answers to their ends."""
        async with AsyncExitStack() as stack:
            tasks = []
            for number, tenant in enumerate(self._tenants):
                zmq = await stack.enter_async_context(AsyncClient(self._endpoints, api_key=tenant.key))
                await zmq.models()  # a client that has never been connected gives up while its gateway restarts
                for index in range(tenant.n_clients):
                    chance = random.Random(f"{self._seed} {number} {index}")
                    ask = self._ask_zmq(zmq) if index % 3 == 2 else _ask_http(tenant.key)
                    tasks.append(asyncio.create_task(self._client(tenant, ask, chance, until_s, deaths)))
            await asyncio.gather(*tasks)

    async def _client(
        self, tenant: Tenant, ask: _Ask, chance: random.Random, until_s: float, deaths: Callable[[], Sequence[Death]]
    ) -> None:
        await asyncio.sleep(chance.uniform(0.0, tenant.think_s))
        while time.monotonic() < until_s:
            options = replace(self._options, max_tokens=chance.randint(_LEAST_TOKENS, self._options.max_tokens))
            (prompt,) = prompts_of(1, chance.randint(1, self._options.prompt_words), chance.getrandbits(40))
            stream = DrillStream(prompt, seed=chance.getrandbits(40) + 1 if chance.random() < 0.5 else 0)
            await ask(options, stream)
            right = {prompt: _answer(stream, options)} if self._is_chain else {}
            self.visits.append(visit_of(tenant.name, stream, outcome_of(stream, right)))
            note_gaps(stream, deaths())
            left_s = max(until_s - time.monotonic(), 0.0)
            await asyncio.sleep(min(chance.expovariate(1.0 / tenant.think_s), left_s))

    def _ask_zmq(self, client: AsyncClient) -> _Ask:
        return lambda options, stream: follow_zmq(client, options, stream)


_Ask = Callable[[StreamRequest, DrillStream], Coroutine[None, None, None]]


def _ask_http(key: str) -> _Ask:
    return lambda options, stream: follow(replace(options, api_key=key), stream)


def _answer(stream: DrillStream, options: StreamRequest) -> str:
    """The right answer of the hash chain."""
    tokens = hash_chain_tokens(list(stream.prompt.encode()), options.max_tokens, stream.seed, HASH_CHAIN_VOCABULARY)
    return "".join(f"{token} " for token in tokens)
