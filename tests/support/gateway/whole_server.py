"""A gateway, a real scheduler and the real hash-chain engine in one event loop, and requests to it over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from actors.gateway.gateway_actor import GatewayActor
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.settings import WorkerSettings
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.memory_cluster import Gang
from tests.support.metric_values import metric_value
from tests.support.waiting import DEADLINE_S

WORKER = WorkerSettings(model_folder="hash-chain", n_slots=16, max_length=512, max_step_tokens=64, hash_chain_pages=128)


async def start_scheduler(r: Rig, incarnation: int) -> None:
    """Start an incarnation of the scheduler and wait until the gateway knows it."""
    r.cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings(), incarnation)
    await r.cluster.wait_until(lambda: r.gateway.incarnation_of("scheduler/0") == incarnation)


@asynccontextmanager
async def whole_server(**settings: Any) -> AsyncIterator[tuple[Rig, Gang]]:
    """A gateway, a scheduler and a gang of one; `settings` are the gateway's."""
    async with rig(with_scheduler=False, max_length=512, **settings) as r:
        r.cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings())
        gang = Gang(r.cluster, WORKER)
        r.cluster.introduce(gang)
        await r.cluster.wait_until(lambda: r.gateway.living("scheduler"))
        yield r, gang


def prompt_number(number: int) -> list[int]:
    """The token ids of one of many different prompts."""
    return [(number * 31 + i) % 1000 for i in range(3 + number * 5)]


def ask(http: httpx.AsyncClient, number: int, max_tokens: int, **fields: object) -> asyncio.Task[httpx.Response]:
    """Start a greedy completion of a prompt."""
    body = {"prompt": prompt_number(number), "max_tokens": max_tokens, "temperature": 0, **fields}
    return asyncio.ensure_future(http.post("/v1/completions", json=body))


def streamed_text(answer: httpx.Response) -> str:
    """The text of a streamed completion."""
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    return "".join(c["text"] for line in lines[:-1] for c in json.loads(line)["choices"])


async def wait_all(answers: list[asyncio.Task[httpx.Response]]) -> list[httpx.Response]:
    """Wait for all answers. Raises: TimeoutError after DEADLINE_S."""
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.gather(*answers)


def n_visible(gateway: GatewayActor) -> int:
    """How many tokens clients can see, by the gateway's metrics."""
    return int(metric_value(gateway.metrics.output_tokens))
