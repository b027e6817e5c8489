"""The fallback model answers new requests while no replica of the main model is ready, and clients can tell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec
import pytest

from actors.gateway.admission.model_choice import RETURN_S, Answering, choose
from messages.client import AsyncClient
from messages.generation.replica_state import ReplicaCondition, ReplicaState
from tests.support.gateway.fake_scheduler import FakeScheduler, ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.journal_file import written
from tests.support.gateway.request_examples import load_of
from tests.support.gateways.fallback_rig import (
    BIG,
    FALLBACK_SCHEDULER,
    MAIN_SCHEDULER,
    SMALL,
    SMALL_LENGTH,
    add_fallback,
    fallback_rig,
    small_oracle,
)
from tests.support.metric_values import metric_value
from tests.support.waiting import DEADLINE_S, until

BODY: dict[str, Any] = {"prompt": "hi", "max_tokens": 4, "temperature": 0}
OF_MAIN, OF_FALLBACK = (ids_text(chain(text_ids("hi"), 4)) for chain in (oracle, small_oracle))
HEADER = "x-fallback-model"


def condition(r: Rig, which: ReplicaCondition, name: str = MAIN_SCHEDULER) -> None:
    """A scheduler has reported this about its replica."""
    r.manager.dispatcher.on_state(name, ReplicaState(condition=which, since_s=0.0))


async def complete(http: httpx.AsyncClient, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return await asyncio.wait_for(http.post("/v1/completions", json={**BODY, **fields}, headers=headers), DEADLINE_S)


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"].strip()


@pytest.mark.parametrize(
    ("down_s", "is_main_ready", "is_fallback_ready", "expected"),
    [
        (99.0, True, True, Answering.MAIN),
        (0.05, False, True, None),
        (0.1, False, True, Answering.FALLBACK),
        (0.1, False, False, None),
        (0.1 + RETURN_S, False, False, Answering.MAIN),
        (0.1 + RETURN_S, False, True, Answering.FALLBACK),
    ],
)
def test_the_choice(down_s: float, is_main_ready: bool, is_fallback_ready: bool, expected: Answering | None) -> None:
    assert choose(0.1, down_s, is_main_ready=is_main_ready, is_fallback_ready=is_fallback_ready) is expected


async def test_it_answers_before_the_main_model_was_ever_ready_and_not_afterwards() -> None:
    async with fallback_rig() as r, r.http() as http:
        answer = await complete(http)
        assert text_of(answer) == OF_FALLBACK.strip()
        assert (answer.json()["model"], answer.headers[HEADER]) == (SMALL, SMALL)
        await r.add_scheduler()
        answer = await complete(http)
        assert text_of(answer) == OF_MAIN.strip()
        assert answer.json()["model"] == BIG
        assert HEADER not in answer.headers
        assert metric_value(r.gateway.metrics.fallbacks) == 1


@pytest.mark.parametrize("how", ["down", "sick", "scheduler", "worker"])
async def test_it_answers_when_the_last_main_replica_is_gone(how: str) -> None:
    async with fallback_rig(has_main=True) as r, r.http() as http:
        assert text_of(await complete(http)) == OF_MAIN.strip()
        if how in ("down", "sick"):
            condition(r, ReplicaCondition(how))
        else:
            await r.cluster.kill(MAIN_SCHEDULER if how == "scheduler" else "worker/0.0")
        answer = await complete(http)
        assert (text_of(answer), answer.headers[HEADER]) == (OF_FALLBACK.strip(), SMALL)


async def test_a_kept_answer_of_the_main_model_is_given_instead() -> None:
    async with fallback_rig(has_main=True, answer_cache="exact") as r, r.http() as http:
        assert text_of(await complete(http)) == OF_MAIN.strip()
        condition(r, ReplicaCondition.DOWN)
        answer = await complete(http)
        assert (text_of(answer), answer.json()["model"]) == (OF_MAIN.strip(), BIG)
        assert HEADER not in answer.headers
        assert answer.headers["x-cache"] == "hit"
        for headers in ({"Cache-Control": "no-cache"}, {"Cache-Control": "no-store"}):
            answer = await complete(http, headers)
            assert (text_of(answer), answer.headers[HEADER]) == (OF_FALLBACK.strip(), SMALL), "it wants no kept answer"
        other = await complete(http, max_tokens=3)
        assert other.headers[HEADER] == SMALL, "another request"


async def test_a_stream_says_so_in_its_head_and_in_its_events() -> None:
    async with fallback_rig() as r, r.http() as http:
        answer = await complete(http, stream=True)
        assert answer.headers[HEADER] == SMALL
        assert f'"model":"{SMALL}"' in answer.text


async def test_a_request_of_the_main_model_waits_for_it_and_is_never_moved() -> None:
    async with fallback_rig(has_main=True) as r, r.http() as http:
        r.scheduler().is_automatic = False
        old = asyncio.ensure_future(complete(http))
        await until(lambda: bool(r.scheduler().running))
        r.scheduler().step(2)
        await r.cluster.kill(MAIN_SCHEDULER)
        new = await complete(http)
        assert text_of(new) == OF_FALLBACK.strip()
        assert not old.done()
        await r.add_scheduler(incarnation=2)
        answer = await old
        assert (text_of(answer), answer.json()["model"]) == (OF_MAIN.strip(), BIG)
        assert HEADER not in answer.headers


async def test_a_request_of_the_fallback_model_ends_there_when_the_main_one_is_back() -> None:
    async with fallback_rig() as r, r.http() as http:
        r.scheduler(FALLBACK_SCHEDULER).is_automatic = False
        asked = asyncio.ensure_future(complete(http))
        await until(lambda: bool(r.scheduler(FALLBACK_SCHEDULER).running))
        r.scheduler(FALLBACK_SCHEDULER).step(2)
        main = await r.add_scheduler()
        await r.cluster.kill(FALLBACK_SCHEDULER)
        await r.cluster.settle()
        assert not main.submits
        await add_fallback(r, incarnation=2)
        assert text_of(await asked) == OF_FALLBACK.strip()


@pytest.mark.parametrize(
    ("headers", "fields"),
    [({"X-No-Fallback": "1"}, {}), ({}, {"allow_fallback": False}), ({}, {"max_tokens": SMALL_LENGTH})],
)
async def test_what_may_not_or_cannot_fall_back_waits_for_the_main_model(headers: dict[str, str], fields: Any) -> None:
    async with fallback_rig(has_main=True) as r, r.http() as http:
        condition(r, ReplicaCondition.DOWN)
        r.scheduler().is_automatic = False
        asked = asyncio.ensure_future(complete(http, headers, **fields))
        await until(lambda: bool(r.scheduler().running))
        r.scheduler().step(SMALL_LENGTH)
        answer = await asked
        assert answer.json()["model"] == BIG
        assert not r.scheduler(FALLBACK_SCHEDULER).submits


async def test_without_any_main_model_a_request_that_cannot_fall_back_is_told_both_reasons() -> None:
    async with fallback_rig() as r, r.http() as http:
        refused = await complete(http, allow_fallback=False)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        refused = await complete(http, max_tokens=SMALL_LENGTH)
        assert refused.status_code == 503
        assert "no scheduler is ready yet; small cannot answer instead: max_tokens: expected at most" in refused.text


async def test_a_request_may_name_the_fallback_model() -> None:
    async with fallback_rig(has_main=True) as r, r.http() as http:
        answer = await complete(http, model=SMALL)
        assert (text_of(answer), answer.json()["model"]) == (OF_FALLBACK.strip(), SMALL)
        assert HEADER not in answer.headers
        assert text_of(await complete(http, model=BIG)) == OF_MAIN.strip()
        assert (await complete(http, model=SMALL, max_tokens=SMALL_LENGTH)).status_code == 400
        models = (await http.get("/v1/models")).json()["data"]
        assert [(one["id"], one["max_model_len"]) for one in models] == [(BIG, 8192), (SMALL, SMALL_LENGTH)]
        assert (await http.get(f"/v1/models/{SMALL}")).json()["max_model_len"] == SMALL_LENGTH


async def test_what_goes_to_the_fallback_model_is_not_shed_for_the_load_of_the_main_one() -> None:
    async with fallback_rig(has_main=True) as r, r.http() as http:
        r.manager.dispatcher.loads.note(MAIN_SCHEDULER, load_of(level=4))
        refused = await complete(http, priority=1)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "shed")
        assert text_of(await complete(http, priority=1, model=SMALL)) == OF_FALLBACK.strip()
        condition(r, ReplicaCondition.DOWN)
        assert text_of(await complete(http, priority=1)) == OF_FALLBACK.strip()
        refused = await complete(http, {"X-No-Fallback": "1"}, priority=1)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "shed"), "it waits for the main model"


async def test_requests_are_held_until_the_main_model_is_back_in_time() -> None:
    """All of a burst wait for one decision."""
    async with fallback_rig(has_main=True, fallback_after_s=60.0) as r, r.http() as http:
        condition(r, ReplicaCondition.DOWN)
        asked = [asyncio.ensure_future(complete(http)) for _ in range(8)]
        await until(lambda: len(r.gateway.admission._arrivals) == 8)
        condition(r, ReplicaCondition.UP)
        assert [text_of(await one) for one in asked] == [OF_MAIN.strip()] * 8


async def test_kept_answers_of_two_models_are_kept_apart() -> None:
    async with fallback_rig(answer_cache="exact", answer_coalescing=True) as r, r.http() as http:
        assert text_of(await complete(http)) == OF_FALLBACK.strip()
        answer = await complete(http)
        assert (text_of(answer), answer.headers["x-cache"], answer.headers[HEADER]) == (OF_FALLBACK.strip(), "hit", SMALL)
        await r.add_scheduler()
        answer = await complete(http)
        assert text_of(answer) == OF_MAIN.strip()
        assert "x-cache" not in answer.headers


async def test_health_says_that_the_main_model_is_missing() -> None:
    async with fallback_rig() as r, r.http() as http:
        answer = await http.get("/v1/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert answer.json()["reasons"] == ["no scheduler of the main model is ready"]
        await r.add_scheduler()
        assert (await http.get("/v1/health")).json()["status"] == "serving"
        await r.cluster.kill(FALLBACK_SCHEDULER)
        assert (await http.get("/v1/health")).status_code == 200


async def _left_half_done(r: Rig) -> FakeScheduler:
    """A gateway is killed while a request of the fallback model has two of its four tokens."""
    scheduler = r.scheduler(FALLBACK_SCHEDULER)
    scheduler.is_automatic = False
    async with r.http() as http:
        asked = asyncio.ensure_future(complete(http, {"Idempotency-Key": "mine"}))
        await until(lambda: bool(scheduler.running))
        scheduler.step(2)
        await until(lambda: scheduler.acked == scheduler.sent)
        await written(r.gateway.journal)
        await r.kill_gateway()
        asked.cancel()
    scheduler.running.clear()
    return scheduler


async def test_the_next_gateway_goes_on_with_the_model_of_a_request(tmp_path: Path) -> None:
    async with fallback_rig(journal_path=str(tmp_path / "journal-0")) as r:
        scheduler = await _left_half_done(r)
        await r.start_gateway(2)
        await until(lambda: bool(scheduler.running))
        scheduler.step(4)
        async with r.http() as http:
            answer = await complete(http, {"Idempotency-Key": "mine"})
        assert (text_of(answer), answer.json()["model"], answer.headers[HEADER]) == (OF_FALLBACK.strip(), SMALL, SMALL)


async def test_a_request_of_a_fallback_model_that_is_gone_ends(tmp_path: Path) -> None:
    """The main model must not go on with it, though both have the same tokenizer."""
    async with fallback_rig(journal_path=str(tmp_path / "journal-0")) as r:
        await _left_half_done(r)
        r.settings = msgspec.structs.replace(r.settings, other_models=[])
        await r.start_gateway(2)
        main = await r.add_scheduler()
        async with r.http() as http:
            answer = await http.get("/v1/streams/mine")
        assert "the server was started again with another model" in answer.text
        assert not main.submits


async def test_a_zeromq_client_is_told() -> None:
    with TemporaryDirectory(prefix="tg-") as folder:
        rig_of = fallback_rig(zeromq_endpoint=f"ipc://{folder}/zeromq")
        async with rig_of as r, AsyncClient(r.settings.zeromq_endpoint) as client:
            pieces = [piece async for piece in client.stream("hi", max_tokens=4, temperature=0)]
            assert [token for piece in pieces for token in piece.ids] == small_oracle(text_ids("hi"), 4)
            assert {piece.fallback_model for piece in pieces} == {SMALL}
            assert (await client.generate("hi", max_tokens=4)).fallback_model == SMALL
            assert (await client.generate("hi", max_tokens=4, model=SMALL)).fallback_model == ""
            assert await client.models() == [BIG, SMALL]
