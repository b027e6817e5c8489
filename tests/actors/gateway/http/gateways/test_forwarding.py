"""Two gateways behind one port: one id means one generation, whichever gateway is asked, and whichever dies."""

from __future__ import annotations

import asyncio
import json
import os
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from actors.gateway.http import server
from actors.gateway.http.gateways import forwarding
from actors.gateway.http.gateways.forwarded_call import RESPONSE_PATH, ForwardedCall
from actors.gateway.http.gateways.forwarding import Forwarded
from actors.gateway.other_gateways.questions import fetched
from actors.gateway.other_gateways.unix_http import get
from actors.gateway.requests.stream_items import PING_ITEM
from tests.support.gateway.asgi_stream import AsgiStream
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.gateways.forwarding import key_of, replace_owner, until_submitted
from tests.support.memory_cluster import ScriptedActor
from tests.support.waiting import DEADLINE_S, next_turn, until

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 8, "temperature": 0, "stream": True}


def without_times(body: bytes) -> bytes:
    """A body up to its latency, which is each reader's own."""
    return body.partition(b'"latency_s"')[0]


async def stream_read_elsewhere(r: Rig, second: Rig, scheduler: Any) -> AsgiStream:
    """A stream without a key, which gateway 0 has begun and of which gateway 1 has the only client: it has two tokens."""
    first = AsgiStream(r, "/v1/completions", BODY)
    await until_submitted(r, 1)
    scheduler.step(2)
    await first.until_id(2)
    stream = AsgiStream(second, f"/v1/streams/{first.headers['x-request-id']}", method="GET")
    await stream.until_id(2)
    await first.leave()
    return stream


@pytest.mark.parametrize(
    ("path", "stream"), [("/v1/completions", True), ("/v1/completions", False), ("/v1/generate", False), ("/v1/batch", False)]
)
async def test_one_key_at_two_gateways_is_one_generation(path: str, stream: bool) -> None:
    body = {**BODY, "stream": stream}
    if path != "/v1/completions":
        tokens = {"tokens": [1, 2] if path == "/v1/generate" else [[1, 2]]}
        body = {name: value for name, value in body.items() if name != "prompt"} | tokens
    async with two_gateways() as (r, second, scheduler):
        for owner in (0, 1):
            n_before = len(scheduler.submits)
            headers = {"Idempotency-Key": key_of(owner)}
            one = AsgiStream(r, path, body, headers)
            two = AsgiStream(second, path, body, headers)
            await until_submitted(r, n_before + 1)
            while scheduler.running:
                scheduler.step()
            assert without_times(await one.end()) == without_times(await two.end())
            assert one.status == two.status == 200
            assert one.headers["x-request-id"] == two.headers["x-request-id"] == key_of(owner)
            assert len(scheduler.submits) == n_before + 1


async def test_a_call_has_the_same_caller_at_whichever_gateway_it_arrives() -> None:
    async with two_gateways(caller_header="authorization") as (r, second, scheduler):
        callers = set[bytes]()
        for key in ("one", "other"):
            for number, gateway in enumerate((r, second, r, second)):
                headers = {"Idempotency-Key": key_of(number // 2, f"{key} {number}"), "Authorization": key}
                stream = AsgiStream(gateway, "/v1/completions", {**BODY, "stream": False}, headers)
                n_before = len(scheduler.submits)
                await until_submitted(r, n_before + 1)
                callers.add(scheduler.submits[-1].terms.caller)
                scheduler.step(8)
                await stream.end()
            assert len(callers) == (1 if key == "one" else 2)


async def test_a_refusal_and_an_unknown_stream_come_from_the_owner() -> None:
    async with two_gateways() as (_, second, _):
        bad = AsgiStream(second, "/v1/completions", {**BODY, "max_tokens": -1}, {"Idempotency-Key": key_of(0)})
        await bad.end()
        assert (bad.status, bad.error["param"]) == (400, "max_tokens")
        unknown = AsgiStream(second, f"/v1/streams/{key_of(0)}", method="GET")
        await unknown.end()
        assert unknown.status == 404


async def test_a_forwarded_stream_goes_on_when_its_owner_is_killed_at_any_token() -> None:
    async with two_gateways() as (r, second, scheduler):
        for cut in range(9):
            headers = {"Idempotency-Key": key_of(0, f"cut {cut}")}
            n_before = len(scheduler.submits)
            stream = AsgiStream(second, "/v1/completions", BODY, headers)
            await until_submitted(r, n_before + 1)
            if cut:
                scheduler.step(cut)
                await stream.until_id(cut)
            server = await replace_owner(r)
            async with asyncio.timeout(DEADLINE_S):
                while not stream.is_complete:  # a request whose admission was not written is sent again
                    scheduler.step()
                    await next_turn()
            forwarded = await stream.end()
            await server.stop()
            assert forwarded == await AsgiStream(r, f"/v1/streams/{headers['Idempotency-Key']}", method="GET").end()
            assert forwarded.count(b"id: ") == 10


async def test_a_forwarded_stream_goes_on_when_its_owner_dies_twice_with_a_ping_between() -> None:
    """The ping has no id, so the forwarder does not know that it belongs to the next run of the request."""
    async with two_gateways(sse_ping_s=0.01) as (r, second, scheduler):
        stream = AsgiStream(second, "/v1/completions", {**BODY, "n": 2}, {"Idempotency-Key": key_of(0)})
        await until_submitted(r, 2)
        scheduler.step(2)
        await stream.until_id(4)
        dead = [await replace_owner(r)]
        [request] = r.manager.unfinished.all
        # pings of the first run may be in the journal and not have been sent before the death
        n_pings, run = request.stream_items.count(PING_ITEM), request.run
        await until(lambda: stream.body.count(b": waiting") > n_pings)
        assert max(stream.hold.runs)[0] == run > 0, "a successor of the forwarder has to know it as well"
        dead.append(await replace_owner(r))
        async with asyncio.timeout(DEADLINE_S):
            while not (stream.is_complete or stream._task.done()):
                scheduler.step()
                await next_turn()
        assert stream.is_complete
        for one in dead:
            await one.stop()


async def test_a_client_that_leaves_is_gone_for_the_owner_too() -> None:
    async with two_gateways() as (r, second, scheduler):
        stream = await stream_read_elsewhere(r, second, scheduler)
        await stream.leave()
        await r.cluster.wait_until(lambda: len(scheduler.cancels) == 1)


async def test_a_gateway_that_dies_is_not_taken_for_its_client_by_the_owner() -> None:
    """The owner's request waits for the successor, which asks for the same response and never begins another."""
    async with two_gateways() as (r, second, scheduler):
        stream = await stream_read_elsewhere(r, second, scheduler)
        assert r.gateway.servers.for_gateways is not None
        for connection in r.gateway.servers.for_gateways.connections:
            connection.transport.abort()  # as the kernel does for a dead process
        again = AsgiStream(second, "/none")  # what a client of the successor's sees
        [request] = r.manager.unfinished.all
        call = ForwardedCall(request.spec.request, "/v1/completions", 0)
        answer = Forwarded(second.gateway.settings.http_sockets[0], call, 60.0, again.be_cut)
        await again.serve(answer)
        scheduler.step(6)
        assert b"[DONE]" in await again.end()
        assert await stream.end() == again.body
        assert (len(scheduler.submits), scheduler.cancels) == (1, [])
        unknown = AsgiStream(second, "/none")
        call = ForwardedCall("nobody's", "/v1/completions", 0)
        await unknown.serve(Forwarded(second.gateway.settings.http_sockets[0], call, 60.0, unknown.be_cut))
        await unknown.ended()
        assert unknown.is_cut, "its client sends the request again"


async def test_a_busy_owner_may_read_a_call_after_its_gateway_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor asks for the answer to a call that the owner has not read yet, or the owner is dead as well."""
    monkeypatch.setattr(forwarding, "_NOT_READ_S", DEADLINE_S)
    async with two_gateways() as (r, second, scheduler):
        key, asked = key_of(0), list[str]()
        knows = r.gateway.admission.unknown
        monkeypatch.setattr(r.gateway.admission, "unknown", lambda *given: asked.append(given[0]) or knows(*given))
        again = AsgiStream(second, "/none")  # what a client of the successor's sees
        call = ForwardedCall(key, "/v1/completions", 0)
        await again.serve(Forwarded(second.gateway.settings.http_sockets[0], call, 60.0, again.be_cut))
        await until(lambda: len(asked) > 1)
        first = AsgiStream(r, "/v1/completions", BODY, {"Idempotency-Key": key})
        await until_submitted(r, 1)
        scheduler.step(8)
        assert b"[DONE]" in await again.end()
        assert await first.end() == again.body


async def test_a_request_waits_as_long_as_the_gateway_of_its_client_is_away() -> None:
    async with two_gateways(orphan_s=0.0) as (r, second, scheduler):
        stream = await stream_read_elsewhere(r, second, scheduler)
        assert r.gateway.servers.for_gateways is not None
        [request] = r.manager.unfinished.all
        await r.cluster.kill("gateway/1")
        stream._task.cancel()
        for connection in r.gateway.servers.for_gateways.connections:
            connection.transport.abort()  # as the kernel does for a dead process
        await r.cluster.wait_until(lambda: not request.watchers)
        for _ in range(3):
            r.manager._sweep()
        await r.cluster.settle()
        assert scheduler.cancels == []
        r.cluster.introduce(ScriptedActor(r.cluster, "gateway/1", 2))
        await r.cluster.wait_until(lambda: r.gateway.incarnation_of("gateway/1") == 2)
        await r.cluster.wait_until(lambda: r.manager._sweep() or len(scheduler.cancels) == 1)


@pytest.mark.parametrize("is_over", [True, False])
async def test_requests_of_before_another_number_of_gateways_are_joined_at_all_of_them(is_over: bool) -> None:
    keys = [key_of(owner) for owner in (0, 1)]
    with TemporaryDirectory(prefix="tg-") as folder:
        async with rig(with_scheduler=False, journal_path=f"{folder}/journal-0") as r:
            scheduler = await r.add_scheduler(is_automatic=False)
            first = [AsgiStream(r, "/v1/completions", BODY, {"Idempotency-Key": key}) for key in keys]
            await until_submitted(r, 2)
            scheduler.step(8 if is_over else 3)
            for one in first:
                await one.until_id(3)
            for one in first:
                await (one.end() if is_over else one.leave())
        async with two_gateways(folder, have_gateways_changed=True) as (r, second, scheduler):
            headers = [{"Idempotency-Key": key} for key in keys]
            streams = [AsgiStream(at, "/v1/completions", BODY, header) for header in headers for at in (r, second)]
            new = AsgiStream(second, "/v1/completions", BODY, {"Idempotency-Key": key_of(0, "new")})
            await until_submitted(r, 1 if is_over else 3)
            while scheduler.running:
                scheduler.step()
                await next_turn()
            bodies = [await stream.end() for stream in (*streams, new)]
            assert bodies[0] == bodies[1] != bodies[2] == bodies[3]
            assert all(body.startswith(one.body) for body, one in zip(bodies[::2], first, strict=False))
            assert (new.status, len(scheduler.submits)) == (200, 1 if is_over else 3)


async def test_an_owner_that_another_gateway_asks_finds_a_response_where_it_was_before() -> None:
    key, body = key_of(1), {"input": "hi", "max_output_tokens": 2, "temperature": 0}
    with TemporaryDirectory(prefix="tg-") as folder:
        async with rig(with_scheduler=False, journal_path=f"{folder}/journal-0") as r:
            scheduler = await r.add_scheduler(is_automatic=False)
            first = AsgiStream(r, "/v1/responses", body, {"Idempotency-Key": key})
            await until_submitted(r, 1)
            scheduler.step(2)
            told = await first.end()
        async with two_gateways(folder, have_gateways_changed=True) as (r, _, _):
            owner = r.settings.http_sockets[1]
            shown = await fetched(owner, get(f"{RESPONSE_PATH}{key}?do=show"))
            assert (shown.status_code, json.loads(bytes(shown.body))) == (200, json.loads(told))
            conversation = await fetched(owner, get(f"{RESPONSE_PATH}{key}?do=conversation"))
            assert (conversation.status_code, len(json.loads(bytes(conversation.body)))) == (200, 2)
            unknown = await fetched(owner, get(f"{RESPONSE_PATH}{key_of(1, 'new')}?do=show"))
            assert unknown.status_code == 404


async def test_an_owner_that_stays_away_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gateway.http.gateways.forwarding._OWNER_AWAY_S", 0.0)
    async with two_gateways() as (r, second, _):
        assert r.gateway.servers.for_gateways is not None
        await r.gateway.servers.for_gateways.stop()
        alone = AsgiStream(second, "/v1/completions", BODY, {"Idempotency-Key": key_of(0)})
        await alone.end()
        assert alone.status == 503


async def test_a_gateway_that_ends_refuses_what_it_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn cancels such calls, and would answer them with status 500."""
    tried = asyncio.Event()

    def refuse_connection(call: Forwarded) -> Any:
        tried.set()
        raise ConnectionRefusedError

    monkeypatch.setattr(Forwarded, "_connected", refuse_connection)
    async with two_gateways() as (r, second, _):
        forwarded = AsgiStream(second, "/v1/completions", BODY, {"Idempotency-Key": key_of(0)})
        await tried.wait()
        whole = AsgiStream(r, "/v1/completions", BODY | {"stream": False}, {"Idempotency-Key": key_of(0)})
        await until_submitted(r, 1)
        for call in (forwarded, whole):
            call._task.cancel()
            await call.end()
            assert (call.status, call.headers["retry-after"]) == (503, "1")


async def test_a_socket_for_other_gateways_that_was_removed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_CHECK_S", 0.001)
    async with two_gateways() as (r, second, scheduler):
        for n in range(2):
            path = r.settings.http_sockets[0]
            os.unlink(path)
            await until(lambda: os.path.exists(r.settings.http_sockets[0]))
            stream = AsgiStream(second, "/v1/completions", BODY, {"Idempotency-Key": key_of(0, f"again-{n}")})
            await until_submitted(r, n + 1)
            while scheduler.running:
                scheduler.step()
            await stream.end()
            assert stream.status == 200
