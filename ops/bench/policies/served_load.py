"""Load for a real server whose policy is measured: two tenants that never stop, or requests that come by the clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from supervisor.drill.streams import bearer

_ANSWER_S = 120.0
_VOCABULARY = 10_000
_AGAIN_S = 0.1  # after an error
_WINDOW_S, _EVERY_S = 10.0, 0.25
_UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def client_of(url: str) -> httpx.AsyncClient:
    """A client with as many connections as are asked for."""
    return httpx.AsyncClient(base_url=url, timeout=_ANSWER_S, limits=_UNLIMITED)


@dataclass
class TenantTokens:
    """What a tenant has got: (time, tokens), those of a prompt with the first token of its answer."""

    key: str
    got: list[tuple[float, int]] = field(default_factory=list)
    n_errors: int = 0

    def between(self, begin_s: float, end_s: float) -> int:
        """Tokens in this time."""
        return sum(n for at_s, n in self.got if begin_s <= at_s < end_s)


@dataclass(frozen=True)
class AskedTokens:
    """Tokens of a request: of its prompt, and of its answer."""

    n_prompt: int
    n_output: int


async def stream_until(http: httpx.AsyncClient, tenant: TenantTokens, shape: AskedTokens, seed: int, end_s: float) -> None:
    """One connection of a tenant: one stream after the other until then. The last one is left."""
    chance = random.Random(seed)
    while time.monotonic() < end_s:
        prompt = [chance.randrange(_VOCABULARY) for _ in range(shape.n_prompt)]
        body = {"prompt": prompt, "max_tokens": shape.n_output, "temperature": 0, "stream": True}
        n_more = shape.n_prompt
        try:
            async with http.stream("POST", "/v1/completions", json=body, headers=bearer(tenant.key)) as answer:
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    if line.startswith("data: {") and '"finish_reason":null' in line:
                        tenant.got.append((time.monotonic(), 1 + n_more))
                        n_more = 0
                    if time.monotonic() >= end_s:
                        return
        except httpx.HTTPError:
            tenant.n_errors += 1
            await asyncio.sleep(_AGAIN_S)


@dataclass(frozen=True)
class DueRequest:
    """A request that comes at a time after the beginning. `deadline_s`: of its whole answer; None: it has none."""

    at_s: float
    shape: AskedTokens
    deadline_s: float | None


@dataclass
class Punctuality:
    """How many requests with a deadline were in time, and how many errors there were."""

    n_in_time: int = 0
    n_late: int = 0
    n_errors: int = 0
    n_others: int = 0


async def ask_by_the_clock(http: httpx.AsyncClient, key: str, requests: Sequence[DueRequest], seed: int) -> Punctuality:
    """Send each request at its time, whatever has become of the others; a latency begins when it should have been sent."""
    found, began_s, chance = Punctuality(), time.monotonic(), random.Random(seed)
    prompts = [[chance.randrange(_VOCABULARY) for _ in range(one.shape.n_prompt)] for one in requests]

    async def ask(one: DueRequest, prompt: list[int]) -> None:
        await asyncio.sleep(max(began_s + one.at_s - time.monotonic(), 0.0))
        body = {"prompt": prompt, "max_tokens": one.shape.n_output, "temperature": 0}
        terms = {} if one.deadline_s is None else {"deadline_ms": one.deadline_s * 1e3}
        try:
            (await http.post("/v1/completions", json={**body, **terms}, headers=bearer(key))).raise_for_status()
        except httpx.HTTPError:
            found.n_errors += 1
            return
        took_s = time.monotonic() - began_s - one.at_s
        if one.deadline_s is None:
            found.n_others += 1
        elif took_s <= one.deadline_s:
            found.n_in_time += 1
        else:
            found.n_late += 1

    await asyncio.gather(*(ask(one, prompt) for one, prompt in zip(requests, prompts, strict=True)))
    return found


def largest_distance(tenants: Sequence[TenantTokens], share: float, span: tuple[float, float]) -> float:
    """The largest distance of the first tenant's part of all tokens from its share, in any 10 s of this time."""
    begin_s, found = span[0], 0.0
    while begin_s + _WINDOW_S <= span[1]:
        first, second = (one.between(begin_s, begin_s + _WINDOW_S) for one in tenants)
        if first + second:
            found = max(found, abs(first / (first + second) - share))
        begin_s += _EVERY_S
    return found
