"""A request that is sent again joins the one that has its key or id: one generation, and the same bytes for everybody."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.gateway.asgi_stream import AsgiStream
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import next_turn

COMPLETION = {"prompt": [1, 2], "max_tokens": 6, "temperature": 0, "stream": True}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 6,
    "n": 2,
    "seed": 5,
    "logprobs": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}
KEY = {"Idempotency-Key": "mine"}
CORRELATION = {"X-Request-Id": "mine"}


def completion(r: Rig, headers: dict[str, str] | None = None, **fields: Any) -> AsgiStream:
    return AsgiStream(r, "/v1/completions", {**COMPLETION, **fields}, headers)


async def until_submitted(r: Rig, n: int) -> None:
    await r.cluster.wait_until(lambda: len(r.scheduler().submits) == n)


@pytest.mark.parametrize("headers", [KEY, {**KEY, "X-Request-Id": "a proxy's"}])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_sent_twice_is_one_generation(headers: dict[str, str], stream: bool) -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        first = completion(r, headers, stream=stream)
        await until_submitted(r, 1)
        second = completion(r, headers, stream=stream)
        for _ in range(6):
            scheduler.step()
        assert await first.end() == await second.end()
        third = completion(r, headers, stream=stream)
        assert await third.end() == first.body
        shown = headers.get("X-Request-Id", "mine")
        assert first.headers["x-request-id"] == second.headers["x-request-id"] == third.headers["x-request-id"] == shown
        assert len(scheduler.submits) == 1


async def test_each_whole_answer_has_the_x_request_id_of_its_own_call() -> None:
    async with rig() as r:
        calls = [completion(r, {**KEY, "X-Request-Id": name}, stream=False) for name in ("one", "two")]
        assert await calls[0].end() == await calls[1].end()
        assert [call.headers["x-request-id"] for call in calls] == ["one", "two"]
        assert len(r.scheduler().submits) == 1


async def test_another_body_under_a_key_is_refused_and_says_so() -> None:
    async with rig() as r:
        await completion(r, KEY).end()
        other = completion(r, KEY, max_tokens=5)
        await other.end()
        assert (other.status, other.error["code"], other.error["param"]) == (422, "idempotency_key_reused", "Idempotency-Key")
        elsewhere = AsgiStream(r, "/v1/generate", {"tokens": [1, 2]}, KEY)
        await elsewhere.end()
        assert elsewhere.status == 422


@pytest.mark.parametrize("header", ["Idempotency-Key", "Last-Event-ID"])
async def test_a_header_that_cannot_be_used_is_named(header: str) -> None:
    async with rig() as r:
        bad = completion(r, {header: "\x07"})
        await bad.end()
        assert (bad.status, bad.error["param"]) == (400, header)


@pytest.mark.parametrize("body", [COMPLETION, {**COMPLETION, "max_tokens": 5}])
async def test_two_requests_with_the_same_x_request_id_are_two_requests(body: dict[str, Any]) -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        first = completion(r, CORRELATION)
        await until_submitted(r, 1)
        second = AsgiStream(r, "/v1/completions", body, CORRELATION)
        await until_submitted(r, 2)
        while scheduler.running:
            scheduler.step()
        await first.end()
        await second.end()
        assert first.headers["x-request-id"] == second.headers["x-request-id"] == "mine"
        unknown = AsgiStream(r, "/v1/streams/mine", method="GET")
        await unknown.end()
        assert unknown.status == 404


async def test_a_stream_that_goes_on_needs_the_key_that_names_it() -> None:
    async with rig() as r:
        nameless = completion(r, {**CORRELATION, "Last-Event-ID": "3"})
        await nameless.end()
        assert (nameless.status, nameless.error["param"]) == (400, "Last-Event-ID")
        assert "expected an Idempotency-Key beside it" in nameless.error["message"]


async def test_a_request_that_failed_is_computed_when_it_is_sent_again() -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        first = completion(r, KEY)
        await until_submitted(r, 1)
        scheduler.fail(scheduler.submits[0].attempt)
        assert b'"error"' in await first.end()
        again = completion(r, KEY)
        await until_submitted(r, 2)
        scheduler.step(6)
        await again.end()
        assert again.status == 200
        assert (await AsgiStream(r, "/v1/streams/mine", method="GET").end()).endswith(again.body[-40:])


@pytest.mark.parametrize(("headers", "is_cancelled"), [({}, True), (CORRELATION, True), (KEY, False)])
async def test_only_a_request_with_a_key_goes_on_without_its_client(headers: dict[str, str], is_cancelled: bool) -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        first = completion(r, headers)
        await until_submitted(r, 1)
        scheduler.step(2)
        await first.until_id(2)
        await first.leave()
        if is_cancelled:
            await r.cluster.wait_until(lambda: len(scheduler.cancels) == 1)
            await r.cluster.wait_until(lambda: r.manager.gate.n_active == 0)
        again = completion(r, headers)
        await until_submitted(r, 2 if is_cancelled else 1)
        while scheduler.running:
            scheduler.step()
        await again.end()
        assert len(scheduler.cancels) == is_cancelled
        assert again.last_id == 8
        assert len(scheduler.submits) == 1 + is_cancelled


@pytest.mark.parametrize(("path", "body"), [("completions", COMPLETION), ("chat/completions", CHAT)])
@pytest.mark.parametrize("again", ["key", "get", "query"])
async def test_a_stream_goes_on_behind_its_last_event_after_a_gateway_s_death(
    path: str, body: dict[str, Any], again: str, tmp_path: Any
) -> None:
    """The answer is cut at every event once: what both connections read together is the undisturbed answer."""
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        n = body.get("n", 1)
        for cut in range(1, 6 * n + 1):
            headers = {"Idempotency-Key": f"{again} {cut}", "X-Request-Id": f"a proxy's {cut}"}
            submitted = len(scheduler.submits)
            first = AsgiStream(r, f"/v1/{path}", body, headers)
            await until_submitted(r, submitted + n)
            scheduler.step(-(-cut // n))
            await first.until_id(cut)
            first.cut()
            await r.kill_gateway()
            await r.start_gateway(r.gateway.spawn_spec.incarnation + 1)
            read = read_up_to(first.body, cut)
            after = {"Last-Event-ID": str(cut)}
            place = f"/v1/streams/{again} {cut}"
            if again == "key":
                second = AsgiStream(r, f"/v1/{path}", body, {**headers, **after})
            elif again == "get":
                second = AsgiStream(r, place, headers=after, method="GET")
            else:
                second = AsgiStream(r, f"{place}?starting_after={cut}", method="GET")
            while scheduler.running or r.manager.gate.n_active:
                scheduler.step()
                await next_turn()
            whole = await AsgiStream(r, place, method="GET").end()
            assert read + await second.end() == whole
            assert first.headers["x-request-id"] == second.headers["x-request-id"] == f"a proxy's {cut}"


def read_up_to(body: bytes, number: int) -> bytes:
    """The body up to the end of the event with this id."""
    found = re.search(rb"^id: %d\n(retry: \d+\n)?\n" % number, body, re.MULTILINE)
    assert found is not None
    return body[: found.end()]


async def test_a_stream_can_be_read_from_any_event_while_it_runs_and_afterwards() -> None:
    async with rig(with_scheduler=False) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        first = AsgiStream(r, "/v1/chat/completions", CHAT, KEY)
        await until_submitted(r, 2)
        scheduler.step(2)
        await first.until_id(4)
        others = [AsgiStream(r, f"/v1/streams/mine?starting_after={n}", method="GET") for n in range(5)]
        early = AsgiStream(r, "/v1/streams/mine", headers={"Last-Event-ID": "5"}, method="GET")
        await early.end()
        assert (early.status, early.error["param"]) == (400, "Last-Event-ID")
        scheduler.step(4)
        whole = await first.end()
        assert [await other.end() for other in others] == [whole, *(whole[len(read_up_to(whole, n)) :] for n in range(1, 5))]
        after_all = AsgiStream(r, "/v1/streams/mine", headers={"Last-Event-ID": str(first.last_id)}, method="GET")
        await after_all.end()
        assert (after_all.status, after_all.body) == (204, b""), "a browser's EventSource does not come back after a 204"


async def test_ids_that_no_request_has() -> None:
    async with rig() as r:
        await completion(r, KEY).end()
        unknown = AsgiStream(r, "/v1/streams/other", method="GET")
        await unknown.end()
        assert (unknown.status, unknown.error["code"], unknown.error["param"]) == (404, "not_found", "id")
        lost = completion(r, {"Idempotency-Key": "other", "Last-Event-ID": "3"})
        await lost.end()
        assert lost.status == 404, "a part of the answer was read: a new answer might not fit to it"
        r.manager.finished.retained.expire(1e12)
        forgotten = AsgiStream(r, "/v1/streams/mine", method="GET")
        await forgotten.end()
        assert (forgotten.status, forgotten.error["code"]) == (410, "gone")
        assert len(r.scheduler().submits) == 1


async def test_a_known_request_is_joined_while_new_ones_are_refused() -> None:
    async with rig(with_scheduler=False, max_active_requests=1) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        first = completion(r, KEY)
        await until_submitted(r, 1)
        new = completion(r, {"Idempotency-Key": "other"})
        await new.end()
        assert new.status == 429
        second = completion(r, KEY)
        scheduler.step(6)
        assert await first.end() == await second.end()


async def test_without_a_journal_of_streams_only_those_with_an_id_can_be_asked_for() -> None:
    async with rig(journal_http_streams=False) as r:
        bare, named = completion(r), completion(r, KEY)
        assert b"id: " not in await bare.end()
        assert b"id: 1\nretry: 500\n\n" in await named.end()
        again = AsgiStream(r, f"/v1/streams/{bare.headers['x-request-id']}", method="GET")
        await again.end()
        assert again.status == 404
