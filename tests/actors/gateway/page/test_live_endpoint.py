"""/v1/live over ASGI and sockets: one snapshot or a stream, behind keys, over all gateways, and nobody waits for viewers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway import tree_status
from actors.gateway.http.answers import live_stream
from actors.gateway.page import collector
from messages.access.api_key import Role, new_key
from messages.access.key_file import change_keys
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.waiting import DEADLINE_S, next_turn

BODY: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 400, "stream": True}
STREAM = "/v1/live?stream=true"


@pytest.fixture(autouse=True)
def silent_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none in these tests: it is waited for as shortly as possible."""
    monkeypatch.setattr(tree_status, "_WAIT_S", 0.001)


def address_of(r: Rig) -> str:
    host, port = r.address
    return f"http://{host}:{port}"


async def next_snapshot(lines: Any) -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


async def read_to_end(lines: Any) -> None:
    async for _ in lines:
        pass


async def begun(http: httpx.AsyncClient, r: Rig, headers: dict[str, str] | None = None) -> asyncio.Task[httpx.Response]:
    """A stream that goes on until it is cancelled."""
    n_before = len(r.manager.unfinished.all)
    task = asyncio.ensure_future(http.post("/v1/completions", json=BODY, headers=headers))
    async with asyncio.timeout(DEADLINE_S):
        while len(r.manager.unfinished.all) == n_before:
            await next_turn()
    return task


async def test_one_snapshot_shows_a_request_but_not_its_whole_id() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        await r.add_scheduler(is_automatic=False)
        task = await begun(http, r)
        found = (await http.get("/v1/live")).json()
        (request,) = r.manager.unfinished.all
        (row,) = found["requests"]
        assert (found["n_requests"], row["output_tokens"], row["prompt_tokens"]) == (1, 0, 3)
        assert row["id"].endswith("…")
        assert request.spec.request not in json.dumps(found)
        assert (found["gateway"], found["supervisor"]["is_heard"]) == ("gateway/0", False)
        task.cancel()


async def test_what_it_does_not_know_is_refused() -> None:
    async with rig() as r, r.http() as http:
        answer = await http.get("/v1/live?stream=yes")
        assert (answer.status_code, "stream: expected true or false" in answer.text) == (400, True)
        assert (await http.get("/v1/live?tenant=me")).status_code == 400


async def test_the_stream_ends_with_its_gateway_and_holds_up_no_drain() -> None:
    async with (
        rig(with_socket=True) as r,
        httpx.AsyncClient(base_url=address_of(r), timeout=DEADLINE_S) as http,
        http.stream("GET", STREAM) as answer,
        asyncio.timeout(DEADLINE_S),
    ):
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.aiter_lines()
        await next_snapshot(lines)
        assert list(r.gateway.servers.unread_by_connection().values()) == [0], "a drain does not wait for it"
        await r.gateway.servers.close()
        await read_to_end(lines)


async def test_a_viewer_hears_that_its_gateway_lives_while_there_is_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_status, "_WAIT_S", 2 * DEADLINE_S)  # no collection ends before this test does
    monkeypatch.setattr(live_stream, "PING_S", 0.001)
    async with (
        rig(with_socket=True) as r,
        httpx.AsyncClient(base_url=address_of(r), timeout=DEADLINE_S) as http,
        http.stream("GET", STREAM) as answer,
        asyncio.timeout(DEADLINE_S),
    ):
        lines = answer.aiter_lines()
        said = [await anext(lines) for _ in range(6)]
        assert (said.count(": alive") >= 2, any(line.startswith("data:") for line in said)) == (True, False)


async def test_the_headers_of_a_stream_can_be_asked_for_alone() -> None:
    async with rig() as r, r.http() as http:
        answer = await http.head(STREAM)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")


async def test_a_viewer_that_leaves_ends_the_collections() -> None:
    async with rig(with_socket=True) as r, httpx.AsyncClient(base_url=address_of(r), timeout=DEADLINE_S) as http:
        feed = r.gateway.servers.live
        assert feed is not None
        async with http.stream("GET", STREAM) as answer, asyncio.timeout(DEADLINE_S):
            await next_snapshot(answer.aiter_lines())
            assert feed.n_viewers == 1
        async with asyncio.timeout(DEADLINE_S):
            while feed.n_viewers:
                await next_turn()
        assert not feed.is_running


async def test_a_key_is_needed_and_a_revoked_one_ends_the_stream(tmp_path: Path) -> None:
    text, record = new_key("me", Role.USER, 1.0)
    change_keys(tmp_path / "keys.json", lambda keys: [record])
    settings: dict[str, Any] = {"keys_file": str(tmp_path / "keys.json")}
    async with (
        rig(with_socket=True, **settings) as r,
        httpx.AsyncClient(base_url=address_of(r), timeout=DEADLINE_S) as http,
    ):
        assert (await http.get("/v1/live")).status_code == 401
        assert (await http.get("/", headers={"Accept": "text/html"})).status_code == 200
        headers = {"Authorization": f"Bearer {text}"}
        async with http.stream("GET", STREAM, headers=headers) as answer, asyncio.timeout(DEADLINE_S):
            lines = answer.aiter_lines()
            await next_snapshot(lines)
            change_keys(tmp_path / "keys.json", lambda keys: [])
            r.gateway.access.refresh()
            await read_to_end(lines)


async def test_a_user_sees_its_own_requests_and_an_admin_all(tmp_path: Path) -> None:
    made = {who: new_key(who, role, 1.0) for who, role in (("me", Role.USER), ("you", Role.USER), ("boss", Role.ADMIN))}
    change_keys(tmp_path / "keys.json", lambda keys: [record for _, record in made.values()])
    headers = {who: {"Authorization": f"Bearer {text}"} for who, (text, _) in made.items()}
    async with rig(with_scheduler=False, keys_file=str(tmp_path / "keys.json")) as r, r.http() as http:
        await r.add_scheduler(is_automatic=False)
        tasks = [await begun(http, r, headers[who]) for who in ("me", "you", "you")]
        ids = [one.spec.request for one in r.manager.unfinished.all]
        seen = {who: (await http.get("/v1/live", headers=headers[who])).json() for who in made}
        assert [one["id"] for one in seen["me"]["requests"]] == ids[:1]
        assert [one["id"] for one in seen["you"]["requests"]] == ids[1:]
        assert [one["id"] for one in seen["boss"]["requests"]] == ids
        assert [one["tenant"] for one in seen["boss"]["tenants"]] == ["me", "you"]
        assert [seen[who]["n_requests"] for who in made] == [1, 2, 3]
        for task in tasks:
            task.cancel()


async def test_the_requests_of_all_gateways_are_seen_at_each_and_a_dead_one_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_gateways() as (r, second, _), r.http() as http:
        task = await begun(http, r)
        other = httpx.AsyncClient(transport=httpx.ASGITransport(app=second.gateway.servers.app), base_url="http://gateway")
        async with other:
            found = (await other.get("/v1/live")).json()
            assert [one["gateway"] for one in found["requests"]] == ["gateway/0"]
            monkeypatch.setattr(collector, "_OTHERS_S", 0.05)
            assert r.gateway.servers.for_gateways is not None
            await r.gateway.servers.for_gateways.stop()
            found = (await other.get("/v1/live")).json()
            assert (found["requests"], found["gateway"]) == ([], "gateway/1")
        task.cancel()
