"""One server that is asked for urgent answers: first while it is idle, then while others want all of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from messages.client import AsyncClient
from messages.errors import ClientError
from messages.run_dir import zeromq_endpoint
from ops.bench.own_server import OwnServer

KINDS: Mapping[str, Mapping[str, Any]] = {  # of sampling, which urgent requests have in turns
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8},
    "top-k, top-p": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "penalties": {"temperature": 0.7, "repetition_penalty": 1.1, "presence_penalty": 0.5},
    "logprobs": {"temperature": 0.0, "logprobs": 5},
}
_IDS = range(100, 20_000)  # which every vocabulary has that is worth a measurement
_BEHIND = 100  # priority of the others
_DEADLINE_S = 300.0
_SATURATED_S = 120.0  # at most until all of them have a token or wait
_PAUSE_S = 0.03  # between urgent requests, as a client takes to read an answer
_PLANS = "tardigrade_scheduler_urgent_plans_total"


class NotAnswered(Exception):
    """A request failed, or the server was never busy; the text says how."""


@dataclass(frozen=True)
class UrgentLoad:
    """`urgent` requests of `prompt_tokens` each, one after the other; beside them `others` of the same prompts want
    `other_tokens` each, of which `slots` run at once."""

    urgent: int
    prompt_tokens: int
    others: int
    slots: int
    other_tokens: int
    seed: int


@dataclass
class UrgentTimes:
    """Seconds to first tokens by kind of sampling, and the tokens themselves; what the others got meanwhile."""

    first_s: dict[str, list[float]] = field(default_factory=dict)
    first_ids: list[int] = field(default_factory=list)
    other_tokens_per_s: float = 0.0
    urgent_plans: int = 0

    @property
    def all_s(self) -> list[float]:
        """The first tokens of all kinds."""
        return [one for times in self.first_s.values() for one in times]

    @property
    def in_order_s(self) -> list[float]:
        """The same in the order in which they were asked."""
        turns = itertools.zip_longest(*self.first_s.values())
        return [one for turn in turns for one in turn if one is not None]


async def measured(server: OwnServer, load: UrgentLoad) -> tuple[UrgentTimes, UrgentTimes]:
    """(idle, beside others). Both get the same prompts with the same seeds. Raises: NotAnswered."""
    client, crowd = (AsyncClient(zeromq_endpoint(server.run_dir)) for _ in range(2))
    others = _Others(crowd, load)
    try:
        await _urgent(client, load, server, lambda: 0)  # what runs for the first time compiles itself
        idle = await _urgent(client, load, server, lambda: 0)
        await others.begin()
        return idle, await _urgent(client, load, server, lambda: others.n_tokens)
    except ClientError as error:
        raise NotAnswered(str(error)) from None
    finally:
        await others.end()
        await client.close()
        await crowd.close()


async def _urgent(client: AsyncClient, load: UrgentLoad, server: OwnServer, others_tokens: Any) -> UrgentTimes:
    """Of each kind in turns, after one request that does not count: a server that expects none keeps no slot for them."""
    rng, found = random.Random(load.seed), UrgentTimes({kind: [] for kind in KINDS})
    await client.generate([rng.choice(_IDS) for _ in range(load.prompt_tokens)], priority=0, max_tokens=4, ignore_eos=True)
    n_plans, n_before, began_s = _urgent_plans(server), others_tokens(), time.perf_counter()
    for number in range(load.urgent):
        kind = list(KINDS)[number % len(KINDS)]
        prompt = [rng.choice(_IDS) for _ in range(load.prompt_tokens)]
        options = {**KINDS[kind], "priority": 0, "seed": number, "max_tokens": 4, "ignore_eos": True, "deadline_s": _DEADLINE_S}
        asked_s, first_s = time.perf_counter(), 0.0
        async for piece in client.stream(tokens=prompt, **options):
            if piece.ids and not first_s:
                first_s = time.perf_counter() - asked_s
                found.first_ids.append(int(piece.ids[0]))
        found.first_s[kind].append(first_s)
        await asyncio.sleep(_PAUSE_S)
    found.other_tokens_per_s = (others_tokens() - n_before) / (time.perf_counter() - began_s)
    found.urgent_plans = _urgent_plans(server) - n_plans
    return found


def _urgent_plans(server: OwnServer) -> int:
    """How many urgent plans the schedulers have told of; they tell about once a second."""
    time.sleep(1.5)
    lines = httpx.get(f"{server.url}/metrics", timeout=30.0).text.splitlines()
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_PLANS)))


class _Others:
    """Requests of low priority that keep a server busy."""

    def __init__(self, client: AsyncClient, load: UrgentLoad) -> None:
        self.n_tokens = 0
        self._client, self._load = client, load
        self._tasks: list[asyncio.Task[None]] = []
        self._n_begun = 0

    async def begin(self) -> None:
        """Returns when as many as the server has slots have a token. Raises: NotAnswered, ClientError."""
        rng = random.Random(self._load.seed + 1)
        for _ in range(self._load.others):
            prompt = [rng.choice(_IDS) for _ in range(self._load.prompt_tokens)]
            self._tasks.append(asyncio.create_task(self._one(prompt)))
        end_s = time.monotonic() + _SATURATED_S
        while self._n_begun < self._load.slots:
            for task in self._tasks:
                if task.done():
                    task.result()  # raises what ended it
            if time.monotonic() > end_s:
                raise NotAnswered(f"others: expected {self._load.slots} with a token, got {self._n_begun}")
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Cancels those that still run."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, ClientError):
                await task

    async def _one(self, prompt: list[int]) -> None:
        options = {"priority": _BEHIND, "max_tokens": self._load.other_tokens, "temperature": 0.8, "ignore_eos": True}
        has_begun = False
        async for piece in self._client.stream(tokens=prompt, deadline_s=_DEADLINE_S, **options):
            self.n_tokens += len(piece.ids)
            self._n_begun += bool(piece.ids) and not has_begun
            has_begun = has_begun or bool(piece.ids)
