"""A request that others follow leaves, or what they depend on dies: each follower goes on at its next token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from messages.generation.sequences import Refused, Suspicion
from tests.support.answers.equal_requests import BODY, PATH, ask, coalescing, find, finish, ids_of, status_of, two
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.journal_file import written


async def cancelled(r: Rig, scheduler: FakeScheduler) -> None:
    r.manager.cancel(find(r, "leader"))


async def too_late(r: Rig, scheduler: FakeScheduler) -> None:
    r.manager.cancel(find(r, "leader"), "deadline")


async def failed(r: Rig, scheduler: FakeScheduler) -> None:
    scheduler.fail(next(iter(scheduler.running)))


async def withdrawn(r: Rig, scheduler: FakeScheduler) -> None:
    r.manager._withdrawn(find(r, "leader"))


@pytest.mark.parametrize("n_before", [0, 3])
@pytest.mark.parametrize("end", [cancelled, too_late, failed, withdrawn])
async def test_a_follower_goes_on_at_its_next_token_when_its_leader_leaves(end: Any, n_before: int) -> None:
    async with coalescing() as (r, scheduler, http):
        leader, follower = await two(r, http)
        third = await ask(r, http)
        await r.cluster.wait_until(lambda: scheduler.running)
        if n_before:
            scheduler.step(n_before)
            await r.cluster.wait_until(lambda: scheduler.acked == scheduler.sent)
        await end(r, scheduler)
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 2)
        again = scheduler.submits[1]
        assert again.request == find(r, "follower").spec.request
        assert again.tokens.tolist() == [1, 2, *oracle([1, 2], n_before)]
        await finish(r, scheduler)
        answers = await follower, await third
        assert [ids_of(answer) for answer in answers] == [oracle([1, 2], 8)] * 2
        assert [status_of(answer) for answer in answers] == ["coalesced"] * 2
        assert len(scheduler.submits) == 2, "the third follows the second"
        await leader


async def test_followers_that_may_not_follow_the_next_leader_are_computed_too() -> None:
    async with coalescing() as (r, scheduler, http):
        leader = await ask(r, http, idempotency_key="leader")
        whole = await ask(r, http, body={**BODY, "stream": False})
        stream = await ask(r, http, body={**BODY, "priority": 1})
        r.manager.cancel(find(r, "leader"))
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 3)
        await finish(r, scheduler)
        assert (await whole).json()["choices"][0]["token_ids"] == ids_of(await stream) == oracle([1, 2], 8)
        await leader


async def test_a_follower_leaves_and_nobody_else_notices() -> None:
    async with coalescing() as (r, scheduler, http):
        leader, follower = await two(r, http)
        third = await ask(r, http)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(2)
        await r.cluster.wait_until(lambda: scheduler.acked == scheduler.sent)
        r.manager.cancel(find(r, "follower"))
        await finish(r, scheduler)
        assert [ids_of(await answer) for answer in (leader, third)] == [oracle([1, 2], 8)] * 2
        assert ids_of(await follower) == oracle([1, 2], 2)
        assert (len(scheduler.submits), scheduler.cancels) == (1, [])


async def test_a_refusal_of_the_leader_is_no_refusal_of_its_followers() -> None:
    async with coalescing() as (r, scheduler, http):
        scheduler.takes = False
        leader, follower = await two(r, http)
        await r.cluster.wait_until(lambda: scheduler.submits)
        scheduler.takes = True
        refused = Refused(attempt=scheduler.submits[0].attempt, code="too_large_for_memory", detail="x", retryable=False)
        scheduler.mailbox.send("gateway/0", refused)
        assert (await leader).status_code == 400
        await finish(r, scheduler)
        assert ids_of(await follower) == oracle([1, 2], 8)


async def test_followers_of_a_request_that_kills_workers_end_with_it_unless_they_are_of_another_caller() -> None:
    async with coalescing() as (r, scheduler, http):
        leader, follower = await two(r, http)
        more = [await ask(r, http) for _ in range(3)]
        other = find(r, "follower")
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(2)
        terms = msgspec.structs.replace(other.spec.terms, caller=b"another")
        other.spec = other.sequences[0].spec = msgspec.structs.replace(other.spec, terms=terms)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        answers = [await answer for answer in (leader, *more)]
        assert all("quarantined" in answer.text for answer in answers)
        await finish(r, scheduler)
        assert ids_of(await follower) == oracle([1, 2], 8)


async def test_a_follower_is_as_suspect_as_its_leader_was_also_after_a_death_of_its_gateway(tmp_path: Path) -> None:
    suspicion = Suspicion(deaths=2, certain=1, reach=50, passed=0)
    async with coalescing(journal_path=str(tmp_path / "journal-0")) as (r, scheduler, http):
        leader, follower = await two(r, http)
        await r.cluster.wait_until(lambda: scheduler.running)
        find(r, "leader").sequences[0].suspicion = suspicion
        r.manager.cancel(find(r, "leader"))
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 2)
        assert scheduler.submits[1].suspicion == suspicion
        await written(r.gateway.journal)
        await r.kill_gateway()
        follower.cancel()
        await r.start_gateway(2)
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 3)
        assert scheduler.submits[2].suspicion == suspicion
        await leader


async def test_followers_of_a_request_that_is_given_up_after_losses_are_computed_at_once_with_its_losses() -> None:
    async with coalescing() as (r, scheduler, http):
        asked = await two(r, http)
        third = await ask(r, http)
        await r.cluster.wait_until(lambda: scheduler.running)
        find(r, "leader").sequences[0].n_losses = 17
        scheduler.fail(next(iter(scheduler.running)), "given up")
        await r.cluster.wait_until(lambda: len(scheduler.submits) == 3)
        assert {one.sequences[0].n_losses for one in r.manager.unfinished.all} == {17}
        await finish(r, scheduler)
        assert [ids_of(await answer) for answer in (asked[1], third)] == [oracle([1, 2], 8)] * 2
        await asked[0]


async def test_a_scheduler_dies_under_a_leader_and_its_followers() -> None:
    async with coalescing() as (r, scheduler, http):
        answers = await two(r, http)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(3)
        await r.cluster.wait_until(lambda: scheduler.acked == scheduler.sent)
        await r.cluster.kill("scheduler/0")
        scheduler = await r.add_scheduler(incarnation=2)
        assert [ids_of(await answer) for answer in answers] == [oracle([1, 2], 8)] * 2
        assert [submit.tokens.tolist() for submit in scheduler.submits] == [[1, 2, *oracle([1, 2], 3)]]


@pytest.mark.parametrize("n_before", [0, 3])
async def test_followers_of_a_killed_gateway_are_ordinary_requests_of_the_next(tmp_path: Path, n_before: int) -> None:
    async with coalescing(journal_path=str(tmp_path / "journal-0")) as (r, scheduler, http):
        asked = await two(r, http)
        await r.cluster.wait_until(lambda: scheduler.running)
        if n_before:
            scheduler.step(n_before)
        await written(r.gateway.journal)
        await r.kill_gateway()
        for answer in asked:
            answer.cancel()
        scheduler.running.clear()
        n_submits = len(scheduler.submits)
        await r.start_gateway(2)
        known = [1, 2, *oracle([1, 2], n_before)]
        await r.cluster.wait_until(lambda: len(scheduler.submits) == n_submits + 2)
        assert [submit.tokens.tolist() for submit in scheduler.submits[n_submits:]] == [known] * 2
        async with r.http() as again:
            named = [{"idempotency-key": name} for name in ("leader", "follower")]
            answers = [asyncio.ensure_future(again.post(PATH, json=BODY, headers=name)) for name in named]
            await finish(r, scheduler)
            assert [ids_of(await answer) for answer in answers] == [oracle([1, 2], 8)] * 2
            assert [status_of(await answer) for answer in answers] == ["", "coalesced"]
