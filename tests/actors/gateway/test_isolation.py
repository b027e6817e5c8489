"""Callers do not share what is cached: neither pages nor tails of prompts, nor answers, kept or being computed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.whole_server import whole_server
from tests.support.waiting import DEADLINE_S

PROMPT = [(i * 7) % 900 for i in range(100)]
ME, YOU = {"x-key": "me"}, {"x-key": "you"}
NAMED: dict[str, Any] = {"caller_header": "X-Key"}


async def reused(http: httpx.AsyncClient, headers: dict[str, str], prompt: list[int] = PROMPT, **fields: Any) -> int:
    """Ask for a completion; returns the tokens of its prompt that were not computed."""
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, **fields}
    answer = await http.post("/v1/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_without_a_header_that_names_them_callers_share_their_pages() -> None:
    async with whole_server() as (r, _), r.http() as http:
        assert [await reused(http, ME), await reused(http, YOU)] == [0, 96]


async def test_callers_that_a_header_names_share_no_pages() -> None:
    async with whole_server(**NAMED) as (r, _), r.http() as http:
        assert [await reused(http, ME), await reused(http, YOU), await reused(http, {})] == [0, 0, 0]
        assert [await reused(http, ME), await reused(http, YOU), await reused(http, {})] == [96, 96, 96]


@pytest.mark.parametrize("settings", [{}, NAMED])
async def test_a_salt_makes_the_circle_smaller_and_never_larger(settings: dict[str, Any]) -> None:
    async with whole_server(**settings) as (r, _), r.http() as http:
        mine: dict[str, Any] = {"cache_salt": "of us two"}
        assert [await reused(http, ME), await reused(http, ME, **mine), await reused(http, ME, **mine)] == [0, 0, 96]
        assert await reused(http, ME, cache_salt="another") == 0
        assert await reused(http, YOU, **mine) == (0 if settings else 96)


async def test_the_end_of_a_prompt_is_not_copied_from_another_caller() -> None:
    async with whole_server(**NAMED) as (r, gang), r.http() as http:
        gang.hold()  # so that all of them run together
        asked = [asyncio.ensure_future(reused(http, headers, PROMPT[:11], max_tokens=8)) for headers in (ME, ME, YOU)]
        await r.cluster.wait_until(lambda: r.manager.gate.n_active == len(asked))
        gang.release_held()
        async with asyncio.timeout(DEADLINE_S):
            assert sorted(await asyncio.gather(*asked)) == [0, 0, 10], "one of the two equal ones of one caller"


async def test_schedulers_learn_the_circle_from_the_gateway_alone() -> None:
    async with rig(**NAMED) as r, r.http() as http:
        for headers in (ME, YOU, ME):
            await reused(http, headers)
        scopes = [submit.terms.cache_scope for submit in r.scheduler().submits]
        assert scopes[0] == scopes[2] != scopes[1]
        refused = await http.post("/v1/completions", json={"prompt": [1], "cache_salt": 5})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "cache_salt")


async def test_kept_answers_do_not_cross_from_one_caller_to_another() -> None:
    async with rig(answer_cache="exact", **NAMED) as r, r.http() as http:
        for headers in (ME, YOU, ME, YOU, {}):
            await reused(http, headers)
        assert (r.manager.equals.statistics()["answer_hits"], len(r.scheduler().submits)) == (2, 3)
        await reused(http, ME, cache_salt="s")
        assert len(r.scheduler().submits) == 4, "a salt is another circle"
