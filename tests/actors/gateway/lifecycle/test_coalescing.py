"""Equal requests that run at the same time: one is computed, and the others get its tokens, whatever becomes of it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.support.answers.equal_requests import (
    ASKED,
    BODY,
    OPTIONS,
    PATH,
    ask,
    coalescing,
    comparable,
    finish,
    ids_of,
    status_of,
    two,
)
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.gateway_rig import rig


@pytest.mark.parametrize(("path", "options"), [(path, options) for path, found in OPTIONS.items() for options in found])
@pytest.mark.parametrize("n_before", [0, 2])
async def test_a_follower_gets_the_bytes_of_its_leader(path: str, options: dict[str, Any], n_before: int) -> None:
    async with coalescing() as (r, scheduler, http):
        leader = await ask(r, http, path, {**ASKED[path], **options})
        if n_before:
            await r.cluster.wait_until(lambda: scheduler.running)
            scheduler.step(n_before)
            await r.cluster.wait_until(lambda: scheduler.acked == scheduler.sent)
        follower = await ask(r, http, path, {**ASKED[path], **options})
        await finish(r, scheduler)
        first, second = await leader, await follower
        assert (status_of(first), status_of(second)) == ("", "coalesced")
        assert comparable(first) == comparable(second)
        assert len(scheduler.submits) == (2 if path == "/v1/batch" else 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 3, "temperature": 0.7, "seed": 5},
        {"stop": [ids_text(oracle([1, 2], 5))[-4:]]},
        {"logprobs": 2},
        {"prompt": [[1, 2], [3]], "logprobs": 1, "echo": True},
        {"n": 2, "best_of": 3, "temperature": 0.7, "seed": 5, "stream": False},
        {"stream_options": {"include_usage": True}},
    ],
)
async def test_whatever_an_answer_has_its_follower_has_too(changes: dict[str, Any]) -> None:
    body = {**BODY, **changes}
    async with coalescing() as (r, scheduler, http):
        scheduler.n_cached = 1
        leader = await ask(r, http, body=body)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(2)
        followers = [await ask(r, http, body=body) for _ in range(3)]
        n_submits = len(scheduler.submits)
        await finish(r, scheduler)
        first, others = await leader, [await follower for follower in followers]
        assert [status_of(other) for other in others] == ["coalesced"] * 3
        assert {comparable(other) for other in others} == {comparable(first)}
        assert len(scheduler.submits) == n_submits


async def test_the_figures() -> None:
    async with coalescing() as (r, scheduler, http):
        answers = await two(r, http)
        await finish(r, scheduler)
        await asyncio.gather(*answers)
        found = r.gateway.statistics()
        assert (found["coalesced"], found["coalesced_tokens"]) == (1, 8)
        text = (await r.gateway.exposition()).decode()
        assert re.search(r"tardigrade_coalesced_requests_total\{[^}]*\} 1", text)
        assert re.search(r"tardigrade_coalesced_tokens_total\{[^}]*\} 8", text)
        assert len(r.manager.equals.coalescing or ()) == 0, "nothing is left of requests that are over"


async def test_without_the_setting_each_request_is_computed() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        answers = await two(r, http)
        await finish(r, scheduler)
        assert [status_of(await answer) for answer in answers] == ["", ""]
        assert len(scheduler.submits) == 2
        assert "coalesced" not in r.gateway.statistics()


@pytest.mark.parametrize(
    ("leader", "follower", "headers", "is_coalesced"),
    [
        ({}, {"priority": 3}, {}, True),
        ({"priority": 3}, {}, {}, False),
        ({}, {"stream": False}, {}, True),
        ({"stream": False}, {}, {}, False),
        ({}, {"temperature": 0.7}, {}, False),
        ({}, {"max_tokens": 9}, {}, False),
        ({}, {}, {"cache_control": "no-cache"}, False),
        ({}, {}, {"cache_control": "no-store"}, False),
    ],
)
async def test_a_request_follows_only_one_that_serves_it_as_well(
    leader: dict[str, Any], follower: dict[str, Any], headers: dict[str, str], is_coalesced: bool
) -> None:
    async with coalescing() as (r, scheduler, http):
        answers = [await ask(r, http, body={**BODY, **leader}), await ask(r, http, body={**BODY, **follower}, **headers)]
        await finish(r, scheduler)
        assert status_of(await answers[0]) == ""
        assert status_of(await answers[1]) == ("coalesced" if is_coalesced else "")
        assert len(scheduler.submits) == (1 if is_coalesced else 2)


async def test_a_request_that_is_computed_anew_leads_those_after_it() -> None:
    async with coalescing() as (r, scheduler, http):
        first = await ask(r, http)
        second = await ask(r, http, cache_control="no-cache")
        await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
        third = await ask(r, http)
        scheduler.running.pop(min(scheduler.running))
        scheduler.step(8)
        assert [status_of(await answer) for answer in (second, third)] == ["", "coalesced"]
        r.manager.cancel(r.manager.unfinished.all[0])
        await first


async def test_no_answer_crosses_from_one_caller_to_another() -> None:
    async with coalescing(caller_header="x-key") as (r, scheduler, http):
        answers = [await ask(r, http, x_key=key) for key in ("me", "you", "me")]
        await finish(r, scheduler)
        assert [status_of(await answer) for answer in answers] == ["", "", "coalesced"]


async def test_with_a_cache_the_answer_is_kept_once_and_found_by_the_next() -> None:
    async with coalescing(answer_cache="exact") as (r, scheduler, http):
        answers = await two(r, http)
        await finish(r, scheduler)
        first, second = await asyncio.gather(*answers)
        third = await http.post(PATH, json=BODY)
        assert [status_of(answer) for answer in (first, second, third)] == ["", "coalesced", "hit"]
        assert ids_of(first) == ids_of(second) == ids_of(third) == oracle([1, 2], 8)
        kept = r.manager.equals.kept
        assert kept is not None
        assert (len(kept), kept.n_hits, len(scheduler.submits)) == (1, 1, 1)
