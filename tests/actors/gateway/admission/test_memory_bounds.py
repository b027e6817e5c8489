"""What clients can make a gateway hold is bounded in all, not only for each: bodies that come, answers that are kept."""

from __future__ import annotations

import json
from types import SimpleNamespace

import msgspec
import pytest

from actors.gateway.admission.body_budget import UNCOUNTED_BYTES, BodyBudget
from actors.gateway.journal.retained import RetainedRequests
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.http_connections import BODY, HEAD, connected, until_connected
from tests.support.gateway.journal_file import SERVED
from tests.support.gateway.request_examples import request_of, spec_of

LARGE = 4 * UNCOUNTED_BYTES
FULL = 200 << 10  # of one large body: more than half of the budget


def large_request(path: str, caller: str = "me") -> bytes:
    body = json.dumps({"prompt": [3], "max_tokens": 2, "user": "x" * FULL}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-key: {caller}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_large_bodies_share_a_budget_and_small_ones_pass() -> None:
    async with (
        rig(with_socket=True, max_body_bytes=LARGE, max_bodies_bytes=1) as r,
        connected(r, 3) as (slow, other, small),
    ):
        bodies = r.gateway.bodies
        slow.writer.write(large_request("/v1/completions")[:-1])
        await r.cluster.wait_until(lambda: bodies.n_bytes > FULL - UNCOUNTED_BYTES)
        other.writer.write(large_request("/v1/completions"))
        status, headers, answer = await other.answer()
        assert (status, answer["error"]["code"], int(headers[b"retry-after"])) == (503, "too_many_bodies", 1)
        small.writer.write(HEAD + BODY)
        assert (await small.answer())[0] == 200
        slow.writer.transport.abort()
        await until_connected(r, 2)
        await r.cluster.wait_until(lambda: bodies.n_bytes == 0)
        other.writer.write(large_request("/v1/completions"))
        assert (await other.answer())[0] == 200, "the connection is as good as before"
        assert bodies.n_bytes == 0


async def test_bodies_of_one_caller_leave_room_for_those_of_others() -> None:
    bounds = {"max_body_bytes": LARGE, "max_bodies_bytes": 8 * (FULL - UNCOUNTED_BYTES), "caller_header": "X-Key"}
    async with rig(with_socket=True, **bounds) as r, connected(r, 9) as (*slow, other):
        bodies = r.gateway.bodies
        for number, one in enumerate(slow[:6], 1):
            one.writer.write(large_request("/v1/completions", "flood")[:-1])
            await r.cluster.wait_until(lambda n=number: bodies.n_bytes > n * (FULL - UNCOUNTED_BYTES))
        slow[6].writer.write(large_request("/v1/completions", "flood"))
        status, headers, answer = await slow[6].answer()
        assert (status, answer["error"]["code"], int(headers[b"retry-after"])) == (429, "caller_share", 1)
        assert "in large bodies of one caller together, its share of" in answer["error"]["message"]
        other.writer.write(large_request("/v1/completions", "other"))
        assert (await other.answer())[0] == 200
        for one in slow:
            one.writer.transport.abort()
        await r.cluster.wait_until(lambda: bodies.n_bytes == 0)


def test_one_body_alone_may_take_all_of_the_budget() -> None:
    budget = BodyBudget(10 << 20, 1, are_told_apart=True)
    counted = 0
    for n_bytes in range(1 << 20, (10 << 20) + 1, 1 << 20):
        counted = budget.count(n_bytes, counted, b"me")
    with pytest.raises(Refusal, match="large bodies together"):
        budget.count(1 << 20, 0, b"you")
    budget.release(counted, b"me")
    assert budget.n_bytes == 0


async def test_a_server_that_is_closed_waits_for_no_body() -> None:
    async with rig(with_scheduler=False, with_socket=True) as r, connected(r, 3) as raws:
        for raw, path in zip(raws, (b"chat/completions", b"completions", b"batch"), strict=True):
            raw.writer.write(b"POST /v1/%s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n" % path)
            assert (await raw.answer())[0] == 503


async def test_a_server_that_is_closed_gives_answers_that_it_has() -> None:
    async with rig() as r, r.http() as http:
        wish = {"tokens": [3], "max_tokens": 2, "temperature": 0, "request_id": "mine"}
        before = await http.post("/v1/generate", json=wish)
        r.gateway.manager.gate.is_draining = True
        again = await http.post("/v1/generate", json=wish)
        assert (again.status_code, again.json()["tokens"]) == (200, before.json()["tokens"])
        assert (await http.post("/v1/generate", json={**wish, "request_id": "new"})).status_code == 503


def finished(request_id: str, n_bytes: int, *, is_keyless: bool = False, caller: bytes = b"") -> Request:
    spec = msgspec.structs.replace(spec_of(), request=request_id, prompts=[bytes(n_bytes)], is_resumable=True)
    spec = msgspec.structs.replace(spec, terms=msgspec.structs.replace(spec.terms, caller=caller))
    return request_of(msgspec.structs.replace(spec, ends_with_client=is_keyless))


@pytest.mark.parametrize("is_keyless", [False, True])
def test_finished_answers_of_one_caller_make_room_for_its_own(is_keyless: bool) -> None:
    journal = SimpleNamespace(finish=lambda *_: None, read=lambda *_: None, delete=lambda number: None)
    kept = RetainedRequests(journal, SERVED, 600.0, most_bytes=12_000, are_told_apart=True)  # pyright: ignore[reportArgumentType]
    wanted = [("one", 1000, b"other"), *((f"f{number}", 4000, b"flood") for number in range(6)), ("large", 9000, b"third")]
    for number, (name, n_bytes, caller) in enumerate(wanted, 1):
        request = finished(name, n_bytes, is_keyless=is_keyless, caller=caller)
        request.number = number
        kept.keep(request, 1.0)
        if name == "f5":
            assert [one for one in ("one", "f3", "f4", "f5") if kept.find(one)] == ["one", "f4", "f5"]
    assert kept.find("large"), "the newest is kept"
    assert (kept.find("one") is not None, len(kept)) == (True, 2), "who has the most makes room"
    assert ("one" in kept.forgotten, "f5" in kept.forgotten) == (False, True)


def test_finished_answers_are_kept_within_a_size() -> None:
    deleted: list[int] = []
    journal = SimpleNamespace(finish=lambda *_: None, read=lambda *_: None, delete=deleted.append)
    kept = RetainedRequests(journal, SERVED, 600.0, most_bytes=10_000)  # pyright: ignore[reportArgumentType]
    for number in range(1, 6):
        request = finished(f"r{number}", 4000)
        request.number = number
        kept.keep(request, 1.0)
        kept.keep(request, 1.0)
    assert (len(kept), deleted) == (2, [1, 2, 3])
    assert kept.find("r3") is None
    assert kept.find("r4") is not None
    huge = finished("huge", 40_000)
    kept.keep(huge, 2.0)
    assert len(kept) == 1, "the newest one is kept"
    kept.expire(602.5)
    assert len(kept) == 0


def test_streams_without_a_key_push_no_answer_with_a_key_out_and_go_soon_after_their_clients_have_them() -> None:
    deleted: list[int] = []
    journal = SimpleNamespace(finish=lambda *_: None, read=lambda *_: None, delete=deleted.append)
    kept = RetainedRequests(journal, SERVED, 600.0, most_bytes=10_000)  # pyright: ignore[reportArgumentType]
    for number in range(1, 8):
        request = finished("key" if number == 1 else f"s{number}", 4000, is_keyless=number > 1)
        request.number = number
        kept.keep(request, 1.0)
    assert kept.find("key") is not None
    assert deleted == [2, 3, 4, 5], "the oldest streams"
    kept.read("key", 2.0)
    kept.read("s6", 2.0)
    kept.expire(21.9)
    assert kept.find("s6") is not None
    kept.expire(22.1)
    assert [kept.find(name) is not None for name in ("key", "s6", "s7")] == [True, False, True]
    assert "s6" in kept.forgotten
