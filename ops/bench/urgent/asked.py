"""One server that is asked for urgent answers: first while it is idle, then while others want all of it."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from messages.client import AsyncClient
from messages.errors import ClientError
from messages.run_dir import zeromq_endpoint
from ops.bench.children.crowd_child import IDS, Crowd, CrowdTold
from ops.bench.children.line_child import ChildEnded, LineChild
from ops.bench.own_server import OwnServer

KINDS: Mapping[str, Mapping[str, Any]] = {  # of sampling, which urgent requests have in turns
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8},
    "top-k, top-p": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "penalties": {"temperature": 0.7, "repetition_penalty": 1.1, "presence_penalty": 0.5},
    "logprobs": {"temperature": 0.0, "logprobs": 5},
}
_BEHIND = 100  # priority of the others
_DEADLINE_S = 300.0
_NEW = 4  # tokens of an urgent answer
_PAUSE_S = 0.03  # between urgent requests, as a client takes to read an answer
_TOLD_S = 1.5  # schedulers tell of their figures about once a second
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
    endpoint = zeromq_endpoint(server.run_dir)
    crowd = Crowd(load.others, load.slots, load.prompt_tokens, load.other_tokens, _BEHIND, load.seed + 1)
    client = AsyncClient(endpoint)
    with LineChild("ops.bench.children.crowd_child", endpoint) as others:

        async def tokens(question: Any = None) -> int:
            told = msgspec.convert(await asyncio.to_thread(others.ask, question or {}), CrowdTold)
            if told.error:
                raise NotAnswered(f"others: {told.error}")
            return told.tokens

        try:
            await _urgent(client, load, server)  # what runs for the first time compiles itself
            idle = await _urgent(client, load, server)
            await tokens(msgspec.to_builtins(crowd))
            return idle, await _urgent(client, load, server, tokens)
        except (ClientError, ChildEnded) as error:
            raise NotAnswered(str(error)) from None
        finally:
            await client.close()


async def _urgent(
    client: AsyncClient, load: UrgentLoad, server: OwnServer, others: Callable[[], Awaitable[int]] | None = None
) -> UrgentTimes:
    """Of each kind in turns, after some requests that do not count: a server that expects none keeps no slot for them.

    Raises: ClientError, NotAnswered.
    """
    rng, found = random.Random(load.seed), UrgentTimes({kind: [] for kind in KINDS})
    for _ in KINDS:
        await client.generate(_prompt(rng, load), priority=0, max_tokens=_NEW, ignore_eos=True, deadline_s=_DEADLINE_S)
    n_plans = await _urgent_plans(server)
    n_before, began_s = await others() if others else 0, time.perf_counter()
    for number in range(load.urgent):
        kind = list(KINDS)[number % len(KINDS)]
        first_s, first_id = await _first(client, _prompt(rng, load), {**KINDS[kind], "seed": number})
        found.first_s[kind].append(first_s)
        found.first_ids.append(first_id)
        await asyncio.sleep(_PAUSE_S)
    found.other_tokens_per_s = ((await others() if others else 0) - n_before) / (time.perf_counter() - began_s)
    found.urgent_plans = await _urgent_plans(server) - n_plans
    return found


def _prompt(rng: random.Random, load: UrgentLoad) -> list[int]:
    return [rng.choice(IDS) for _ in range(load.prompt_tokens)]


async def _first(client: AsyncClient, prompt: list[int], options: Mapping[str, Any]) -> tuple[float, int]:
    """(seconds to the first token, the token). The answer is read to its end."""
    asked_s, first_s, first_id = time.perf_counter(), 0.0, -1
    fixed = {"priority": 0, "max_tokens": _NEW, "ignore_eos": True, "deadline_s": _DEADLINE_S}
    async for piece in client.stream(tokens=prompt, **fixed, **options):
        if piece.ids and first_id < 0:
            first_s, first_id = time.perf_counter() - asked_s, int(piece.ids[0])
    return first_s, first_id


async def _urgent_plans(server: OwnServer) -> int:
    """How many urgent plans the schedulers have told of."""
    await asyncio.sleep(_TOLD_S)
    async with httpx.AsyncClient() as http:
        lines = (await http.get(f"{server.url}/metrics", timeout=30.0)).text.splitlines()
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_PLANS)))
