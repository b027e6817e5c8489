"""Kept answers are shared by the gateways through the cache directory, and outlive each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from actors.gateway.gateway_actor import GatewayActor
from tests.support.answers.directory import add_directory
from tests.support.answers.equal_requests import ASKED, comparable
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways

PATH = "/v1/completions"
KEEPING: dict[str, Any] = {"answer_cache": "exact", "caller_header": "x-caller"}
DIRECTORY = "cache_directory/0"


async def ask(http: httpx.AsyncClient, prompt: str = "ab", caller: str = "me") -> httpx.Response:
    answer = await http.post(PATH, json={**ASKED[PATH], "prompt": prompt}, headers={"x-caller": caller})
    assert answer.status_code == 200, answer.text
    return answer


def is_hit(answer: httpx.Response) -> bool:
    return answer.headers.get("x-cache") == "hit"


def n_kept(gateway: GatewayActor) -> int:
    kept = gateway.manager.equals.kept
    return 0 if kept is None else len(kept)


async def test_an_answer_of_one_gateway_is_found_at_the_other(tmp_path: Path) -> None:
    async with two_gateways(**KEEPING) as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        scheduler.is_automatic = True
        await add_directory(r, tmp_path)
        computed = await ask(other)
        await r.cluster.wait_until(lambda: n_kept(r.gateway) == 1)
        found = await ask(http)
        assert is_hit(found)
        assert comparable(found) == comparable(computed)
        assert not is_hit(await ask(http, caller="you")), "answers stay with their caller"
        assert len(scheduler.submits) == 2


async def test_the_next_gateway_finds_what_the_one_before_has_kept(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path / "journal"), **KEEPING) as r:
        directory = await add_directory(r, tmp_path)
        async with r.http() as http:
            for prompt in ("ab", "cd", "ef"):
                await ask(http, prompt)
        await r.cluster.wait_until(lambda: directory.statistics()["shared_answers"] == 3)
        await r.kill_gateway()
        await r.start_gateway(2)
        await r.cluster.wait_until(lambda: n_kept(r.gateway) == 3)
        async with r.http() as http:
            assert is_hit(await ask(http, "cd"))


async def test_a_server_that_starts_anew_finds_what_was_kept(tmp_path: Path) -> None:
    async with rig(**KEEPING) as r, r.http() as http:
        directory = await add_directory(r, tmp_path)
        await ask(http)
        await r.cluster.wait_until(lambda: directory.statistics()["shared_answers"] == 1)
        await directory.stop()
    async with rig(**KEEPING) as r, r.http() as http:
        await add_directory(r, tmp_path)
        await r.cluster.wait_until(lambda: n_kept(r.gateway) == 1)
        assert is_hit(await ask(http))


async def test_a_directory_that_dies_loses_nothing_that_a_gateway_has(tmp_path: Path) -> None:
    """It dies before it has written anything, and the server is started anew afterwards."""
    async with two_gateways(**KEEPING) as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        scheduler.is_automatic = True
        directory = await add_directory(r, tmp_path)
        await ask(http)
        await r.cluster.wait_until(lambda: directory.statistics()["shared_answers"] == 1 and n_kept(second.gateway) == 1)
        await r.cluster.kill(DIRECTORY)
        await ask(other, "cd")  # while there is none
        following = await add_directory(r, tmp_path, 2)
        await r.cluster.wait_until(lambda: following.statistics()["shared_answers"] == 2)
        await r.cluster.wait_until(lambda: n_kept(r.gateway) == 2)
        await following.stop()
    async with rig(**KEEPING) as r, r.http() as http:
        await add_directory(r, tmp_path)
        await r.cluster.wait_until(lambda: n_kept(r.gateway) == 2)
        assert is_hit(await ask(http))


async def test_without_a_directory_a_gateway_keeps_its_own(tmp_path: Path) -> None:
    async with rig(**KEEPING) as r, r.http() as http:
        await ask(http)
        assert is_hit(await ask(http))
        await add_directory(r, tmp_path)
        await r.cluster.kill(DIRECTORY)
        assert is_hit(await ask(http))
        assert not is_hit(await ask(http, "cd"))


async def test_what_was_forgotten_does_not_come_back_from_anywhere(tmp_path: Path) -> None:
    fields = {**KEEPING, "operator_key": "secret"}
    async with two_gateways(**fields) as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        scheduler.is_automatic = True
        directory = await add_directory(r, tmp_path)
        for caller in ("me", "you"):
            await ask(other, caller=caller)
        await r.cluster.wait_until(lambda: n_kept(r.gateway) == 2)
        done = await http.post("/v1/cache/reset", json={"caller": "me"}, headers={"X-Operator-Key": "secret"})
        assert done.status_code == 200, done.text
        assert (n_kept(r.gateway), n_kept(second.gateway), directory.statistics()["shared_answers"]) == (1, 1, 1)
        await r.cluster.kill(DIRECTORY)
        following = await add_directory(r, tmp_path, 2)
        await r.cluster.settle()
        assert following.statistics()["shared_answers"] == 0, "the file is gone with what was forgotten"
        assert not is_hit(await ask(http, caller="me"))
        assert is_hit(await ask(http, caller="you"))
