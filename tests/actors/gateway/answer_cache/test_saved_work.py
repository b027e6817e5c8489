"""What requests have saved that were not computed: their prompt tokens, the time of prefill, and keys and values."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import msgspec

from actors.gateway.gateway_actor import GatewayActor
from messages.lifecycle.cache_figures import cache_figures
from tests.support.answers.directory import add_directory
from tests.support.answers.equal_requests import coalescing, find, finish, two
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.gateway.request_examples import load_of

_PATH = "/v1/completions"
_LOAD = msgspec.structs.replace(load_of(), token_s=0.125, pair_s=0.0625, token_bytes=500)
_BODY: dict[str, Any] = {"prompt": [*range(10)], "max_tokens": 4, "temperature": 0}
_PROMPT_S = 10 * 0.125 + 50 * 0.0625


def _know_cost(gateway: GatewayActor) -> None:
    gateway.manager.dispatcher.loads.note("scheduler/0", msgspec.structs.replace(_LOAD, number=1000))


async def _ask(http: httpx.AsyncClient, **changes: Any) -> bool:
    answer = await http.post(_PATH, json={**_BODY, **changes})
    assert answer.status_code == 200, answer.text
    return answer.headers.get("x-cache") == "hit"


async def test_a_found_answer_saves_the_prefill_of_its_prompt() -> None:
    async with rig(answer_cache="exact") as r, r.http() as http:
        _know_cost(r.gateway)
        assert [await _ask(http) for _ in range(3)] == [False, True, True]
        found = cache_figures([("gateway/0", r.gateway.statistics())]).answers
        assert found is not None
        assert (found.hits, found.prompt_tokens, found.saved_s, found.saved_bytes) == (2, 20, 2 * _PROMPT_S, 10_000)
        text = (await r.gateway.exposition()).decode()
        assert re.search(r'tardigrade_answers_saved_prompt_tokens_total\{[^}]*source="kept"[^}]*\} 20', text)
        assert re.search(r'tardigrade_answers_saved_bytes_total\{[^}]*source="kept"[^}]*\} 10000', text)


async def test_the_prompt_of_several_answers_counts_once_and_without_a_report_only_tokens_are_counted() -> None:
    async with rig(answer_cache="exact") as r, r.http() as http:
        r.manager.dispatcher.loads.remove("scheduler/0")
        assert [await _ask(http, n=3) for _ in range(2)] == [False, True]
        found = cache_figures([("gateway/0", r.gateway.statistics())]).answers
        assert found is not None
        assert (found.prompt_tokens, found.saved_s, found.saved_bytes) == (10, 0.0, 0)


async def test_answers_that_another_gateway_has_computed_count_apart(tmp_path: Path) -> None:
    async with two_gateways(answer_cache="exact") as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        scheduler.is_automatic = True
        directory = await add_directory(r, tmp_path)
        _know_cost(r.gateway)
        assert not await _ask(other)
        assert not await _ask(http, prompt=[1])
        kept = r.gateway.manager.equals.kept
        await r.cluster.wait_until(lambda: kept is not None and len(kept) == 2)
        assert await _ask(http)
        assert await _ask(http, prompt=[1])
        actors = [("gateway/0", r.gateway.statistics()), ("cache_directory/0", directory.statistics())]
        found = cache_figures(actors)
        assert found.answers is not None
        assert found.shared is not None
        assert (found.answers.prompt_tokens, found.shared.prompt_tokens) == (11, 10)
        assert (found.shared.saved_s, found.shared.saved_bytes) == (_PROMPT_S, 5000)


async def test_a_request_that_follows_an_equal_one_saves_its_prefill_once_it_has_all() -> None:
    async with coalescing() as (r, scheduler, http):
        _know_cost(r.gateway)
        answers = await two(r, http)
        running = cache_figures([("gateway/0", r.gateway.statistics())]).coalesced
        assert running is not None
        assert (running.running, running.requests, running.prompt_tokens) == (2, 1, 0)
        await finish(r, scheduler)
        await asyncio.gather(*answers)
        found = cache_figures([("gateway/0", r.gateway.statistics())]).coalesced
        assert found is not None
        assert (found.running, found.requests, found.tokens, found.prompt_tokens) == (0, 1, 8, 2)
        assert (found.saved_s, found.saved_bytes) == (2 * 0.125 + 2 * 0.0625, 1000)


async def test_a_request_whose_leader_leaves_saves_nothing() -> None:
    async with coalescing() as (r, scheduler, http):
        answers = await two(r, http)
        r.manager.cancel(find(r, "leader"))
        await finish(r, scheduler)
        await asyncio.gather(*answers)
        found = cache_figures([("gateway/0", r.gateway.statistics())]).coalesced
        assert found is not None
        assert (found.requests, found.prompt_tokens) == (1, 0)
