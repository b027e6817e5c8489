"""The loop of every actor: how it starts, stops and fails, and that a Fault says what it was doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from actors.actor import Actor, Handler
from messages import drafts, lifecycle
from messages.child import EXIT_FAULT, EXIT_UNUSABLE
from messages.wire.arrays import EMPTY_I32, EMPTY_I64
from messages.wire.message import Message
from tests.support.memory_house import DEADLINE_S, House, Post

NAME = "speculation/0"


class Fragile(Actor):
    """Fails where a test wants it to."""

    fails_at = ""
    handled = 0
    turns = 0
    has_stopped = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {drafts.Tails: self.on_tails}

    async def start(self) -> dict[str, str]:
        self._fail_at("start")
        return {"what": "fragile"}

    async def stop(self) -> None:
        self.has_stopped = True

    def on_tails(self, delivery: object, message: drafts.Tails) -> None:
        self._fail_at("Tails")
        self.handled += 1

    def after_mail(self) -> None:
        self.turns += 1
        if self.handled:
            self._fail_at("after_mail")

    def _fail_at(self, place: str) -> None:
        if self.fails_at == place:
            raise ValueError(f"broken at {place}")


class FailsAtStart(Fragile):
    fails_at = "start"


class FailsInHandler(Fragile):
    fails_at = "Tails"


class FailsAfterMail(Fragile):
    fails_at = "after_mail"


def tails() -> drafts.Tails:
    return drafts.Tails(
        sequences=EMPTY_I64, starts=EMPTY_I32, counts=EMPTY_I32, ids=EMPTY_I32, drafted=EMPTY_I32, accepted=EMPTY_I32
    )


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    await house.close()


async def status_of(house: House) -> int:
    """The exit status of the actor, once its loop has ended and the supervisor has its mail."""
    _, task = house.actors[NAME]
    status = await asyncio.wait_for(asyncio.shield(task), DEADLINE_S)
    for _ in range(20):
        await asyncio.sleep(0)
    return status


async def send_tails(house: House) -> None:
    """Mail of a living peer."""
    await house.wait_until(lambda: NAME in house.up)
    scheduler = Post(house, "scheduler/0")
    house.introduce(scheduler)
    await house.settle(20)
    scheduler.mailbox.send(NAME, tails())


async def test_mail_is_handled_and_a_stop_ends_in_order(house: House) -> None:
    actor = house.start(Fragile, NAME, {})
    await send_tails(house)
    await house.wait_until(lambda: actor.handled == 1 and actor.turns >= 2)
    house._supervisor.mailbox.send(NAME, lifecycle.Stop())
    assert await status_of(house) == 0
    assert actor.has_stopped
    assert house.faults == []


@pytest.mark.parametrize(("kind", "doing"), [(FailsInHandler, "Tails"), (FailsAfterMail, "after_mail")])
async def test_an_error_ends_the_actor_with_a_fault_that_says_where(house: House, kind: type[Fragile], doing: str) -> None:
    actor = house.start(kind, NAME, {})
    await send_tails(house)
    assert await status_of(house) == EXIT_FAULT
    (fault,) = house.faults
    assert fault.doing == doing
    assert f"broken at {doing}" in fault.reason
    assert "_fail_at" in fault.traceback
    assert not actor.has_stopped
    house.faults.clear()


async def test_an_error_at_the_start_is_a_fault_without_a_ready(house: House) -> None:
    house.start(FailsAtStart, NAME, {})
    assert await status_of(house) == EXIT_UNUSABLE  # another start would fail in the same way
    assert [(fault.doing, fault.is_final) for fault in house.faults] == [("start", True)]
    assert NAME not in house.up
    house.faults.clear()


async def test_an_error_outside_of_the_loop_ends_it_and_the_first_one_is_reported(house: House) -> None:
    actor = house.start(Fragile, NAME, {})
    await house.wait_until(lambda: NAME in house.up)
    actor.fail("a timer", RuntimeError("too late"))
    actor.fail("a thread", RuntimeError("a consequence"))
    assert await status_of(house) == EXIT_FAULT
    (fault,) = house.faults
    assert (fault.doing, "too late" in fault.reason) == ("a timer", True)
    house.faults.clear()


async def test_a_message_without_a_handler_is_noticed_before_the_actor_starts() -> None:
    class Deaf(Actor):
        """Handles nothing."""

    house = House()
    with pytest.raises(AssertionError, match="speculation/0 has no handler for \\['Tails'\\]"):
        house.start(Deaf, NAME, {})
    await house.close()


async def test_an_actor_with_nothing_to_finish_is_drained_at_once(house: House) -> None:
    house.start(Fragile, NAME, {})
    await house.wait_until(lambda: NAME in house.up)
    house._supervisor.mailbox.send(NAME, lifecycle.Drain(deadline_s=5.0))
    await house.wait_until(lambda: house.drained == {NAME})


async def test_a_slow_handler_is_logged(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.actor._SLOW_HANDLER_S", -1.0)
    warnings: list[tuple[str, object]] = []
    actor = house.start(Fragile, NAME, {})
    monkeypatch.setattr(actor.log, "warning", lambda event, **fields: warnings.append((event, fields["kind"])), raising=False)
    await send_tails(house)
    await house.wait_until(lambda: bool(warnings))
    assert warnings == [("slow handler", "Tails")]
