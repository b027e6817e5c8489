"""An operator lets caches forget: pages and answers, by caller, prefix and age; and nothing that runs notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.whole_server import n_visible, start_scheduler, whole_server
from tests.support.gateways.fallback_rig import BIG, OTHER, SMALL, add_fallback
from tests.support.memory_cluster import Gang
from tests.support.waiting import DEADLINE_S

KEY = {"X-Operator-Key": "secret"}
A, B = [(i * 7) % 900 for i in range(100)], [5, 6, 7] + [(i * 11) % 900 for i in range(60)]
ME, YOU = {"x-key": "me"}, {"x-key": "you"}


@asynccontextmanager
async def server(**settings: Any) -> AsyncIterator[tuple[Rig, Gang, httpx.AsyncClient]]:
    async with whole_server(operator_key="secret", **settings) as (r, gang), r.http() as http:
        yield r, gang, http


async def cached(http: httpx.AsyncClient, prompt: list[int], headers: dict[str, str] | None = None) -> int:
    """Ask for a completion; returns the tokens of its prompt that were not computed."""
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
    answer = await http.post("/v1/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


async def reset(http: httpx.AsyncClient, **conditions: Any) -> dict[str, int]:
    answer = await http.post("/v1/cache/reset", json=conditions, headers=KEY)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_everything_is_forgotten_and_counted() -> None:
    async with server() as (_, _, http):
        assert [await cached(http, A), await cached(http, B), await cached(http, A)] == [0, 0, 96]
        assert await reset(http) == {"pages": 6 + 4, "answers": 0}
        assert await reset(http) == {"pages": 0, "answers": 0}
        assert [await cached(http, A), await cached(http, A)] == [0, 96]


async def test_the_pages_of_one_caller_are_forgotten() -> None:
    async with server(caller_header="X-Key") as (_, _, http):
        await asyncio.gather(cached(http, A, ME), cached(http, A, YOU), cached(http, B, ME))
        assert (await reset(http, caller="me"))["pages"] == 10
        assert [await cached(http, A, ME), await cached(http, A, YOU)] == [0, 96]
        assert (await reset(http, caller="nobody"))["pages"] == 0


async def test_prompts_that_begin_alike_are_forgotten() -> None:
    async with server() as (_, _, http):
        await asyncio.gather(cached(http, A), cached(http, A[:40] + B), cached(http, B))
        assert (await reset(http, tokens=[*A[:50]]))["pages"] == 4, "those after the 32 tokens that another prompt shares"
        assert [await cached(http, A[:40] + B), await cached(http, B)] == [96, 48]
        assert await cached(http, A) == 32
        assert (await reset(http, tokens=B[:3]))["pages"] == 4
        assert [await cached(http, A), await cached(http, B)] == [96, 0]


async def test_what_is_younger_is_kept() -> None:
    async with server() as (_, _, http):
        await cached(http, A)
        assert (await reset(http, older_than_s=3600))["pages"] == 0
        assert await cached(http, A) == 96
        assert (await reset(http, older_than_s=0))["pages"] == 6


async def test_a_running_stream_goes_on_and_what_it_computes_is_not_found_again() -> None:
    async with server() as (r, gang, http):
        body = {"prompt": A, "max_tokens": 200, "temperature": 0}
        running = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.cluster.wait_until(lambda: n_visible(r.gateway) > 40)
        gang.hold()
        asked = asyncio.ensure_future(reset(http))
        await r.cluster.settle()
        gang.release_held()
        async with asyncio.timeout(DEADLINE_S):
            assert (await asked)["pages"] >= 8
            assert (await running).json()["choices"][0]["text"] == ids_text(oracle(A, 200))
        assert await cached(http, A) == 0, "nothing of it was kept"
        assert await cached(http, A) == 96, "what was computed since is"


async def test_a_scheduler_that_dies_is_asked_again() -> None:
    async with server(schedulers=1) as (r, _, http):
        await cached(http, A)
        await r.cluster.kill("scheduler/0")
        asked = asyncio.ensure_future(reset(http))
        await r.cluster.settle()
        assert not asked.done(), "it may come back with its pages"
        await start_scheduler(r, 2)
        async with asyncio.timeout(DEADLINE_S):
            assert (await asked)["pages"] == 0, "without a vault nothing was left"


@pytest.mark.parametrize(("headers", "field"), [({}, "x-operator-key"), ({"X-Operator-Key": "x"}, "x-operator-key")])
async def test_others_than_the_operator_are_refused(headers: dict[str, str], field: str) -> None:
    async with rig(operator_key="secret") as r, r.http() as http:
        answer = await http.post("/v1/cache/reset", json={}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "operator_only")
        assert answer.json()["error"]["param"] == field
    async with rig() as r, r.http() as http:
        assert (await http.post("/v1/cache/reset", json={}, headers=KEY)).status_code == 403, "there is no key"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"caller": "me"}, "caller"),
        ({"model": "another"}, "model"),
        ({"prompt": "a", "tokens": [1]}, "tokens"),
        ({"tokens": []}, "tokens"),
        ({"older_than_s": -1}, "older_than_s"),
        ({"olderthan": 1}, "olderthan"),
    ],
)
async def test_conditions_that_mean_nothing_are_refused(body: dict[str, Any], field: str) -> None:
    async with rig(operator_key="secret") as r, r.http() as http:
        answer = await http.post("/v1/cache/reset", json=body, headers=KEY)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404 if field == "model" else 400, field), answer.text


async def test_the_caches_of_one_model_are_forgotten() -> None:
    async with rig(operator_key="secret", model_name=BIG, other_models=[OTHER]) as r, r.http() as http:
        small = await add_fallback(r)
        asked = []
        for conditions in ({"model": SMALL}, {"model": BIG}, {}):
            assert (await reset(http, **conditions))["pages"] in (7, 14)
            asked.append((len(r.scheduler().forgotten), len(small.forgotten)))
        assert asked == [(0, 1), (1, 1), (2, 2)]
