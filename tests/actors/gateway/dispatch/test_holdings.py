"""A message that an actor never handles, although its link has delivered it: the scheduler's inventory shows the loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from actors.actor import Actor
from actors.gateway.dispatch import holdings
from actors.scheduler.scheduler_actor import SchedulerActor
from messages.generation.sequences import Ack, Cancel, Holding, Submit, Taken, Tokens
from messages.wire.arrays import int32s, int64s
from messages.wire.message import Message
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.whole_server import ask, prompt_number, streamed_text, wait_all, whole_server


def drop(actor: Actor, kind: type[Message], is_meant: Callable[[Any], bool] = lambda message: True) -> list[Any]:
    """Let the actor overlook the first message of this kind that is meant; returns the list of what it has overlooked."""
    handler, dropped = actor._handlers[kind], []

    def overlook(delivery: Any, message: Any) -> None:
        if not dropped and is_meant(message):
            dropped.append(message)
        else:
            handler(delivery, message)

    actor._handlers[kind] = overlook
    return dropped


def scheduler_of(r: Rig) -> SchedulerActor:
    actor = r.cluster.actors["scheduler/0"][0]
    assert isinstance(actor, SchedulerActor)
    return actor


async def assert_right(answer: Any, number: int, n: int) -> None:
    [response] = await wait_all([answer])
    assert response.status_code == 200
    ids = oracle(prompt_number(number), n)
    assert response.json()["choices"][0]["text"] == "".join(f"{i} " for i in ids)


async def test_a_lost_ending_is_computed_again() -> None:
    async with whole_server() as (r, _), r.http() as http:
        dropped = drop(r.gateway, Tokens, lambda message: bool(message.endings))
        answer = ask(http, 3, 12)
        await r.cluster.wait_until(lambda: bool(dropped))
        await r.cluster.settle(50)
        assert not answer.done()
        scheduler_of(r).tick()
        await assert_right(answer, 3, 12)


async def test_a_lost_submission_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "_LATE_S", 0.0)
    async with whole_server() as (r, _), r.http() as http:
        dropped = drop(scheduler_of(r), Submit)
        answer = ask(http, 4, 9)
        await r.cluster.wait_until(lambda: bool(dropped))
        for _ in range(2):
            scheduler_of(r).tick()
            await r.cluster.settle(20)
        await assert_right(answer, 4, 9)


async def test_a_submission_that_no_scheduler_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "_LATE_S", 0.0)
    async with whole_server(resubmit_budget=2) as (r, _), r.http() as http:
        handlers, unread = scheduler_of(r)._handlers, list[Any]()
        handlers[Submit] = lambda delivery, message: unread.append(message)
        answer = ask(http, 4, 9)
        for n_sent in (1, 2, 3):
            await r.cluster.wait_until(lambda n_sent=n_sent: len(unread) == n_sent)
            for _ in range(2):
                scheduler_of(r).tick()
                await r.cluster.settle(20)
        [response] = await wait_all([answer])
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "given up after 3 lost attempts without progress"
        assert len(unread) == 3


async def test_an_inventory_that_waited_in_the_inbox_blames_no_later_submission() -> None:
    async with whole_server() as (r, gang), r.http() as http:
        gang.hold()
        answer = ask(http, 4, 9)
        await r.cluster.wait_until(lambda: len(r.manager.dispatcher.book) == 1)
        old = Holding(number=0, newest=0, attempts=int64s([]), told=int32s([]))
        for _ in range(3):
            r.manager.on_holding("scheduler/0", old)
        assert r.manager.dispatcher.holdings.n_lost == 0
        gang.release_held()
        await assert_right(answer, 4, 9)


async def test_an_inventory_is_as_old_as_its_making_however_late_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "_LATE_S", 0.0)
    async with whole_server() as (r, gang), r.http() as http:
        gang.hold()
        old = Holding(number=0, newest=0, attempts=int64s([]), told=int32s([]), made_s=r.gateway.now_s())
        answer = ask(http, 4, 9)
        await r.cluster.wait_until(lambda: len(r.manager.dispatcher.book) == 1)
        for _ in range(3):
            r.manager.on_holding("scheduler/0", old)
        assert r.manager.dispatcher.holdings.n_lost == 0
        gang.release_held()
        await assert_right(answer, 4, 9)


async def test_a_lost_confirmation_is_taken_from_the_inventory() -> None:
    async with whole_server() as (r, gang), r.http() as http:
        gang.hold()
        dropped = drop(r.gateway, Taken)
        answer = ask(http, 5, 9)
        await r.cluster.wait_until(lambda: bool(dropped))
        [sequence] = r.manager.dispatcher.book.sequences()
        assert not sequence.is_taken
        scheduler_of(r).tick()
        await r.cluster.wait_until(lambda: sequence.is_taken)
        gang.release_held()
        await assert_right(answer, 5, 9)


async def test_a_lost_cancel_is_sent_again() -> None:
    async with whole_server() as (r, gang), r.http() as http:
        gang.hold()
        dropped = drop(scheduler_of(r), Cancel)
        answer = ask(http, 6, 100)
        await r.cluster.wait_until(lambda: len(scheduler_of(r)._queues) == 1)
        [request] = r.manager.unfinished.all
        r.manager.cancel(request)
        await r.cluster.wait_until(lambda: bool(dropped))
        assert len(scheduler_of(r)._queues) == 1
        scheduler_of(r).tick()
        await r.cluster.wait_until(lambda: len(scheduler_of(r)._queues) == 0)
        await wait_all([answer])


async def test_lost_acknowledgements_stop_no_stream() -> None:
    async with whole_server() as (r, _), r.http() as http:
        scheduler, is_deaf = scheduler_of(r), [True]
        handler = scheduler._handlers[Ack]
        scheduler._handlers[Ack] = lambda delivery, ack: None if is_deaf[0] else handler(delivery, ack)
        answer = ask(http, 7, 100, stream=True)
        limit = 8
        scheduler.settings = msgspec.structs.replace(scheduler.settings, unacked_messages=limit)
        await r.cluster.wait_until(lambda: scheduler._outgoing["gateway/0"].unacknowledged >= limit)
        await r.cluster.settle(50)
        assert not answer.done()
        is_deaf[0] = False
        async with asyncio.timeout(60.0):
            while not answer.done():
                scheduler.tick()
                await r.cluster.settle(20)
        assert streamed_text(answer.result()) == "".join(f"{i} " for i in oracle(prompt_number(7), 100))
