"""Sequences do not keep their request: the gateway does until its end is shown, wherever its sequences wait or go, and it is
freed then, without the collector of garbage."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

import numpy as np
import pytest

from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from messages.generation.sampling import Sampling
from messages.generation.sequences import Refused
from messages.generation.terms import Terms
from tests.support.answers.equal_requests import coalescing, finish, ids_of, two
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("without_collections")


def accepted(r: Rig, name: str, n: int = 2) -> ref[Request]:
    """A new request, which this test does not keep."""
    prompt = np.array([1, 2], "<i4").tobytes()
    terms = Terms(max_tokens=4)
    spec = RequestSpec(
        request=name, api="generate", created_s=0.0, prompts=[prompt], sampling=Sampling(temperature=0.0), terms=terms, n=n
    )
    return ref(r.manager.accept(spec))


class NoTimer:
    """A timer that keeps nothing."""

    def cancel(self) -> None:
        """It has run."""


def cancel(r: Rig, name: str) -> None:
    request = r.manager.unfinished.find(name)
    assert request is not None
    r.manager.cancel(request)


async def test_one_that_is_cancelled_while_it_waits_for_a_place() -> None:
    async with rig(with_scheduler=False) as r:
        scheduler, dispatcher = await r.add_scheduler(is_automatic=False), r.manager.dispatcher
        scheduler.refuse_next = Refused(attempt=0, code="overloaded", detail="full", retryable=True)
        refused = accepted(r, "refused", n=1)
        await until(lambda: dispatcher.n_waiting == 1)
        behind = accepted(r, "behind")
        assert dispatcher.n_waiting == 3
        for name, one in (("refused", refused), ("behind", behind)):
            cancel(r, name)
            await until(lambda one=one: one() is None)
        last = accepted(r, "last")
        dispatcher.scheduler_up("scheduler/0")
        await until(lambda: len(scheduler.running) == 2)
        scheduler.step(4)
        await until(lambda: last() is None)
        assert (dispatcher.n_waiting, r.manager.unfinished.all) == (0, [])


async def test_one_that_is_recalled_and_moved() -> None:
    async with rig(with_scheduler=False) as r:
        places = [await r.add_scheduler(name, is_automatic=False) for name in ("scheduler/0", "scheduler/1")]
        one, dispatcher = accepted(r, "moved"), r.manager.dispatcher
        await until(lambda: sum(len(place.running) for place in places) == 2)
        before, after = places if places[0].running else reversed(places)
        for attempt in list(before.running):
            sequence = dispatcher.book.find(attempt)
            assert sequence is not None
            sequence.is_recalled = True
            del before.running[attempt], sequence
            before.mailbox.send("gateway/0", Refused(attempt=attempt, code="overloaded", detail="recalled", retryable=True))
        await until(lambda: len(after.running) == 2)
        assert dispatcher.moves.n_moved == 2
        after.step(4)
        await until(lambda: one() is None)
        assert r.manager.unfinished.all == []


async def test_a_leader_that_is_quarantined() -> None:
    async with coalescing() as (r, scheduler, http):
        leader, follower = await two(r, http)
        await until(lambda: bool(scheduler.running))
        scheduler.step(2)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        assert "quarantined" in (await leader).text
        assert "quarantined" in (await follower).text
        assert r.manager.unfinished.all == []


async def test_a_follower_whose_leader_is_withdrawn() -> None:
    async with coalescing() as (r, scheduler, http):
        leader, follower = await two(r, http)
        await until(lambda: bool(scheduler.running))
        scheduler.step(2)
        r.manager._withdrawn(r.manager.unfinished.all[0])
        assert (await leader).status_code == 503
        await finish(r, scheduler)
        assert ids_of(await follower) == oracle([1, 2], 8)
        assert r.manager.unfinished.all == []


async def test_one_whose_deadline_has_come_and_whose_id_another_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ending is on its way into the journal, and a timer of uvloop that has run keeps nothing."""
    timers: list[Callable[[], None]] = []
    async with rig(with_scheduler=False) as r:
        monkeypatch.setattr(r.manager.unfinished._post, "later", lambda delay_s, callback: timers.append(callback) or NoTimer())
        waiting, publisher = StepRows(), r.manager._publisher
        publisher._in_journal.append(waiting)  # which the journal has not confirmed
        first = accepted(r, "same")
        short, r.manager.lasting._waits = r.manager.lasting._waits, {}
        while short:  # a second has passed
            short.popitem()[1][1]()
        timers.pop(0)()
        timers.clear()
        second = accepted(r, "same")
        timers.clear()
        assert first() is not None
        publisher._in_journal.popleft()
        await until(lambda: first() is None)
        assert r.manager.unfinished.all == [second()]
        cancel(r, "same")
        await until(lambda: second() is None)
