"""Schedulers die, refuse, or never were there: every accepted request still gets the oracle's tokens and one ending."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from messages.generation.sequences import Ending, Refused, Tokens
from messages.lifecycle.lifecycle import Cause
from messages.wire.arrays import int32s, int64s
from tests.support.gateway.fake_directory import two_replicas
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import rig


def ask(http: httpx.AsyncClient, tokens: list[int], max_tokens: int, **more: object) -> asyncio.Future[httpx.Response]:
    body = {"tokens": tokens, "max_tokens": max_tokens, "temperature": 0, **more}
    return asyncio.ensure_future(http.post("/v1/generate", json=body))


async def test_a_scheduler_dies_and_its_successor_gets_prompt_and_known_tokens() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        answer = ask(http, [1, 2], 20)
        for life in range(2, 6):
            await r.cluster.wait_until(lambda s=scheduler: s.running)
            scheduler.step(3)
            await r.cluster.wait_until(lambda s=scheduler: s.acked == s.sent)
            await r.cluster.kill("scheduler/0")
            await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
            scheduler = await r.add_scheduler(incarnation=life, is_automatic=False)
            await r.cluster.wait_until(lambda s=scheduler: s.running)
            submit = scheduler.submits[0]
            assert submit.n_prompt == 2
            assert submit.tokens.tolist() == [1, 2, *oracle([1, 2], 3 * (life - 1))]
        scheduler.step(100)
        assert (await answer).json()["tokens"] == oracle([1, 2], 20)


async def test_cached_tokens_are_those_of_the_attempt_that_gave_the_first_token() -> None:
    """Whoever dies, and also when a stop string ends it: what a later attempt finds is what this request has put there."""
    async with rig(with_scheduler=False) as r, r.http() as http:
        for stop, reason in (([], "length"), ([str(oracle([1, 2], 8)[6])], "stop")):
            life = r.cluster.incarnation_of.get("scheduler/0", 0)
            scheduler = await r.add_scheduler(incarnation=life + 1, is_automatic=False)
            scheduler.n_cached = 1
            answer = ask(http, [1, 2], 8, stop=stop)
            await r.cluster.wait_until(lambda s=scheduler: s.running)
            scheduler.step(3)
            await r.cluster.wait_until(lambda s=scheduler: s.acked == s.sent)
            await r.cluster.kill("scheduler/0")
            scheduler = await r.add_scheduler(incarnation=life + 2, is_automatic=False)
            scheduler.n_cached = 2
            await r.cluster.wait_until(lambda s=scheduler: s.running)
            scheduler.step(8)
            body = (await answer).json()
            assert (body["finish_reason"], body["n_cached"]) == (reason, 1)
            await r.cluster.kill("scheduler/0")


async def test_another_replica_takes_over_and_late_mail_means_nothing() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        first = await r.add_scheduler("scheduler/0", is_automatic=False)
        answer = ask(http, [5], 10)
        await r.cluster.wait_until(lambda: first.running)
        old_attempt = first.submits[0].attempt
        first.step(4)
        second = await r.add_scheduler("scheduler/1", is_automatic=False)
        await r.cluster.kill("scheduler/0")
        await r.cluster.wait_until(lambda: second.running)
        assert second.submits[0].attempt != old_attempt
        second.sent += 1
        stale = Tokens(
            number=second.sent,
            attempts=int64s([old_attempt]),
            firsts=int32s([4]),
            counts=int32s([1]),
            cached=int32s([0]),
            ids=int32s([123]),
            endings=[Ending(attempt=old_attempt, reason="stop", n_cached=0)],
        )
        second.mailbox.send("gateway/0", stale)
        second.step(100)
        assert (await answer).json()["tokens"] == oracle([5], 10)
        assert second.acked == second.sent


async def test_refusals_for_now_are_asked_again() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        scheduler = await r.add_scheduler()
        scheduler.refuse_next = Refused(attempt=0, code="overloaded", detail="full", retryable=True)
        assert (await ask(http, [5], 4)).json()["tokens"] == oracle([5], 4)
        assert len(scheduler.submits) == 2


async def test_accepted_requests_wait_for_a_scheduler() -> None:
    async with rig() as r, r.http() as http:
        await r.cluster.kill("scheduler/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
        answer = ask(http, [5], 4)
        await r.cluster.wait_until(lambda: r.gateway._manager is not None and r.gateway.manager.dispatcher.n_waiting == 1)
        await r.add_scheduler(incarnation=2)
        assert (await answer).json()["tokens"] == oracle([5], 4)


async def test_the_deadline_ends_a_request_that_nobody_runs() -> None:
    async with rig(request_timeout_s=0.05) as r, r.http() as http:
        await r.cluster.kill("scheduler/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
        answer = await ask(http, [5], 4)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline"


@pytest.mark.parametrize(("cause", "takes"), [("killed", True), ("out_of_memory", True), ("ended", True), ("crashed", False)])
async def test_deaths_that_are_not_its_fault_never_end_a_request(cause: Cause, takes: bool) -> None:
    async with rig(with_scheduler=False, resubmit_budget=3) as r, r.http() as http:
        answer = None
        for life in range(1, 9):
            scheduler = await r.add_scheduler(incarnation=life, is_automatic=False)
            scheduler.takes = takes
            answer = answer or ask(http, [5], 4)
            await r.cluster.wait_until(lambda s=scheduler: s.submits)
            await r.cluster.settle(20)
            await r.cluster.kill("scheduler/0", cause)
            await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
        await r.add_scheduler(incarnation=9)
        assert answer is not None
        assert (await answer).json()["tokens"] == oracle([5], 4)


@pytest.mark.parametrize("cause", ["crashed", "faulted", "hung"])
@pytest.mark.parametrize(("budget", "status", "code"), [(2, 500, "internal_error"), (3, 422, "quarantined")])
async def test_a_poisonous_request_has_a_budget(cause: Cause, budget: int, status: int, code: str) -> None:
    """It is quarantined at its second death alone, which is the fourth in all; a smaller budget ends it before."""
    async with rig(with_scheduler=False, resubmit_budget=budget) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        answer = ask(http, [5], 4)
        for life in range(2, 3 + budget):
            await r.cluster.wait_until(lambda s=scheduler: s.running)
            await r.cluster.wait_until(lambda: all(q.is_taken for q in r.manager.dispatcher.book._sequence_by_attempt.values()))
            await r.cluster.kill("scheduler/0", cause)
            await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
            scheduler = await r.add_scheduler(incarnation=life, is_automatic=False)
        refused = await answer
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


async def test_a_gap_makes_the_gateway_ask_again() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        answer = ask(http, [5], 10)
        await r.cluster.wait_until(lambda: scheduler.running)
        run = next(iter(scheduler.running.values()))
        run.first, run.rest = run.first + 2, run.rest[2:]
        scheduler.step()
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 2)
        scheduler.step(100)
        assert (await answer).json()["tokens"] == oracle([5], 10)


async def test_the_replica_with_the_prefix_is_chosen() -> None:
    async with rig(with_scheduler=False, prefix_wait_s=60.0) as r, r.http() as http:
        await two_replicas(r)
        assert (await ask(http, list(range(40)), 2)).status_code == 200
        assert len(r.scheduler("scheduler/1").submits) == 1


async def test_silence_of_the_directory_is_not_waited_for() -> None:
    async with rig(with_scheduler=False, prefix_wait_s=0.01) as r, r.http() as http:
        directory = await two_replicas(r)
        directory.holder = None
        assert (await ask(http, list(range(40)), 2)).status_code == 200
        assert len(r.scheduler().submits) == 1
