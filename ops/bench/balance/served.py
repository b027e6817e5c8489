"""Requests that come by the clock to a real server of several replicas, and how evenly these share the work, by minute."""

from __future__ import annotations

import asyncio
import random
import time

import httpx
import numpy as np

from ops.bench.balance.run import MINUTE_S, BalanceLoad, BalancePrompts, BalanceResult, imbalance
from ops.bench.policies.served_load import client_of
from ops.bench.told_metrics import by_actor

_COMPUTED, _CACHED = "tardigrade_scheduler_computed_tokens_total", "tardigrade_scheduler_cached_tokens_total"


async def serve_balance(
    url: str, load: BalanceLoad, rate: float, n_minutes: int, seed: int, minute_s: float = MINUTE_S
) -> BalanceResult:
    """Ask `rate` requests a second at random times for so long, whatever has become of those before. `minute_s`: how long a
    minute is taken to be. Requests that failed count as given up."""
    result, chance = BalanceResult(), random.Random(seed)
    prompts, began_s, n_prompt_tokens = BalancePrompts(load, chance), time.monotonic(), 0
    asked = set[asyncio.Task[None]]()
    async with client_of(url) as http:
        watch = asyncio.create_task(_watch(http, result, began_s, n_minutes, minute_s))
        at_s = 0.0
        while (at_s := at_s + chance.expovariate(rate)) < n_minutes * minute_s:
            prompt, n_output = prompts.prompt(), prompts.n_output()
            n_prompt_tokens += len(prompt)
            await asyncio.sleep(max(began_s + at_s - time.monotonic(), 0.0))
            task = asyncio.create_task(_ask(http, result, prompt, n_output))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.gather(watch, *asked)
        result.cached_share = sum((await _of_replicas(http, _CACHED)).values()) / max(n_prompt_tokens, 1)
    return result


async def _ask(http: httpx.AsyncClient, result: BalanceResult, prompt: np.ndarray, n_output: int) -> None:
    body = {"prompt": prompt.tolist(), "max_tokens": n_output, "temperature": 0, "stream": True}
    began_s, is_first = time.monotonic(), True
    try:
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if is_first and line.startswith("data: {"):
                    result.first_token_s.append(time.monotonic() - began_s)
                    is_first = False
    except httpx.HTTPError:
        result.n_given_up += 1


async def _watch(http: httpx.AsyncClient, result: BalanceResult, began_s: float, n_minutes: int, minute_s: float) -> None:
    """Note the imbalance of each minute but the first. Each replica sends its metrics once a second."""
    before = dict[str, float]()
    for minute in range(1, n_minutes + 1):
        await asyncio.sleep(max(began_s + minute * minute_s - time.monotonic(), 0.0))
        now = await _of_replicas(http, _COMPUTED)
        done = [value - before.get(name, 0.0) for name, value in now.items()]
        before = now
        if minute > 1:
            result.imbalances.append(imbalance(done))


async def _of_replicas(http: httpx.AsyncClient, name: str) -> dict[str, float]:
    """A counter of the schedulers, by actor."""
    return by_actor((await http.get("/metrics")).text, name)
