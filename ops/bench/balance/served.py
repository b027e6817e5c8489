"""Requests that come by the clock to a real server of several replicas, and how evenly these share the work, by minute."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from ops.bench.balance.run import BalanceLoad, BalancePrompts
from ops.bench.policies.served_load import client_of

_MINUTE_S = 60.0
_COMPUTED, _CACHED = "tardigrade_scheduler_computed_tokens_total", "tardigrade_scheduler_cached_tokens_total"


@dataclass
class ServedBalance:
    """What a run gave. An imbalance is the largest distance of a replica's computed tokens from the mean, as a share of it."""

    imbalances: list[float] = field(default_factory=list)  # by minute, without the first one
    first_token_s: list[float] = field(default_factory=list)
    n_prompt_tokens: int = 0
    n_cached_tokens: float = 0.0
    n_errors: int = 0

    @property
    def cached_share(self) -> float:
        """Of the tokens of prompts."""
        return self.n_cached_tokens / max(self.n_prompt_tokens, 1)


async def serve_balance(
    url: str, load: BalanceLoad, rate: float, n_minutes: int, seed: int, minute_s: float = _MINUTE_S
) -> ServedBalance:
    """Ask `rate` requests a second at random times for so long, whatever has become of those before. `minute_s`: how long a
    minute is taken to be."""
    result, chance = ServedBalance(), random.Random(seed)
    prompts, began_s = BalancePrompts(load, chance), time.monotonic()
    asked = set[asyncio.Task[None]]()
    async with client_of(url) as http:
        watch = asyncio.create_task(_watch(http, result, began_s, n_minutes, minute_s))
        at_s = 0.0
        while (at_s := at_s + chance.expovariate(rate)) < n_minutes * minute_s:
            prompt, n_output = prompts.prompt(), prompts.n_output()
            await asyncio.sleep(max(began_s + at_s - time.monotonic(), 0.0))
            task = asyncio.create_task(_ask(http, result, prompt, n_output))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.gather(watch, *asked)
        result.n_cached_tokens = sum((await _of_replicas(http, _CACHED)).values())
    return result


async def _ask(http: httpx.AsyncClient, result: ServedBalance, prompt: np.ndarray, n_output: int) -> None:
    body = {"prompt": prompt.tolist(), "max_tokens": n_output, "temperature": 0, "stream": True}
    began_s, is_first = time.monotonic(), True
    result.n_prompt_tokens += len(prompt)
    try:
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if is_first and line.startswith("data: {"):
                    result.first_token_s.append(time.monotonic() - began_s)
                    is_first = False
    except httpx.HTTPError:
        result.n_errors += 1


async def _watch(http: httpx.AsyncClient, result: ServedBalance, began_s: float, n_minutes: int, minute_s: float) -> None:
    """Note the imbalance of each minute but the first. Each replica sends its metrics once a second."""
    before = dict[str, float]()
    for minute in range(1, n_minutes + 1):
        await asyncio.sleep(max(began_s + minute * minute_s - time.monotonic(), 0.0))
        now = await _of_replicas(http, _COMPUTED)
        done = [value - before.get(name, 0.0) for name, value in now.items()]
        mean, before = sum(done) / len(done), now
        if minute > 1:
            result.imbalances.append(max(abs(one - mean) for one in done) / mean)


async def _of_replicas(http: httpx.AsyncClient, name: str) -> dict[str, float]:
    """A counter of the schedulers, by actor."""
    families = text_string_to_metric_families((await http.get("/metrics")).text)
    return {one.labels["actor"]: one.value for family in families for one in family.samples if one.name == name}
