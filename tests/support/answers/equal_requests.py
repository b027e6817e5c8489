"""Equal requests: a body for each API, how answers are compared, and a gateway that computes equal requests once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from actors.gateway.requests.request import Request
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig

GREEDY: dict[str, Any] = {"max_tokens": 6, "temperature": 0}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/generate": {"tokens": [1, 2], **GREEDY},
    "/v1/batch": {"tokens": [[1, 2], [3]], **GREEDY},
    "/v1/completions": {"prompt": "ab", **GREEDY},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], **GREEDY},
    "/v1/responses": {"input": "hi", "max_output_tokens": 6, "temperature": 0},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0},
    "/api/generate": {"prompt": "ab", "options": {"num_predict": 6, "temperature": 0}},
    "/api/chat": {"messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 6, "temperature": 0}},
}
WHOLE_ALONE = ("/v1/generate", "/v1/batch")  # these do not stream
OPTIONS = {path: [{}] if path in WHOLE_ALONE else [{"stream": False}, {"stream": True}] for path in ASKED}
# ids and times differ from answer to answer
_OWN = re.compile(
    r"[a-z]+[-_][0-9a-f]{16,}"
    r'|"(created|created_at|completed_at|\w*_s|\w*_ms|\w*duration|tokens_per_second|\w*per_sec)": ?"?[^,}]+'
)


def comparable(answer: httpx.Response) -> str:
    return _OWN.sub("", answer.text)


PATH = "/v1/completions"
BODY: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 8, "temperature": 0, "stream": True, "return_token_ids": True}
Answering = asyncio.Future[httpx.Response]


@asynccontextmanager
async def coalescing(**settings: Any) -> AsyncIterator[tuple[Rig, FakeScheduler, httpx.AsyncClient]]:
    """A gateway that computes equal requests once, and a scheduler that sends tokens when a test says so."""
    async with rig(with_scheduler=False, answer_coalescing=True, **settings) as r, r.http() as http:
        yield r, await r.add_scheduler(is_automatic=False), http


async def ask(r: Rig, http: httpx.AsyncClient, path: str = PATH, body: dict[str, Any] = BODY, **headers: str) -> Answering:
    """Ask, and wait until the request is accepted."""
    n_before = r.manager.gate.n_active
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = asyncio.ensure_future(http.post(path, json=body, headers=given))
    await r.cluster.wait_until(lambda: r.manager.gate.n_active > n_before or answer.done())
    return answer


async def two(r: Rig, http: httpx.AsyncClient) -> tuple[Answering, Answering]:
    """The answers to a leader and its follower."""
    return await ask(r, http, idempotency_key="leader"), await ask(r, http, idempotency_key="follower")


def find(r: Rig, name: str) -> Request:
    """A running request."""
    found = [request for request in r.manager.unfinished.all if name in request.spec.request]
    assert len(found) == 1
    return found[0]


async def finish(r: Rig, scheduler: FakeScheduler) -> None:
    """Everything that was asked for is computed to its end."""
    scheduler.is_automatic = True
    scheduler._go_on()
    await r.cluster.wait_until(lambda: not r.manager.gate.n_active)


def status_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers.get("x-cache", "")


def ids_of(answer: httpx.Response) -> list[int]:
    """The token ids of a stream of completions."""
    return [int(one) for found in re.findall(r'"token_ids":\[([^\]]*)\]', answer.text) for one in found.split(",") if one]
