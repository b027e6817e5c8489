"""The loop of every actor: how it starts, stops and fails, and that a Fault says what it was doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from actors.actor import Actor, Handler
from messages import drafts
from messages.lifecycle import lifecycle
from messages.outcomes import ExitCode
from messages.wire.arrays import EMPTY_I32, EMPTY_I64
from messages.wire.message import Message
from tests.support.memory_cluster import DEADLINE_S, MemoryCluster, ScriptedActor

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
async def cluster() -> AsyncIterator[MemoryCluster]:
    cluster = MemoryCluster()
    yield cluster
    await cluster.close()


async def status_of(cluster: MemoryCluster) -> int:
    """The exit status of the actor, once its loop has ended and the supervisor has its mail."""
    _, task = cluster.actors[NAME]
    status = await asyncio.wait_for(asyncio.shield(task), DEADLINE_S)
    for _ in range(20):
        await asyncio.sleep(0)
    return status


async def send_tails(cluster: MemoryCluster) -> None:
    """Mail of a living peer."""
    await cluster.wait_until(lambda: NAME in cluster.up)
    scheduler = ScriptedActor(cluster, "scheduler/0")
    cluster.introduce(scheduler)
    await cluster.settle(20)
    scheduler.mailbox.send(NAME, tails())


async def test_mail_is_handled_and_a_stop_ends_in_order(cluster: MemoryCluster) -> None:
    actor = cluster.start(Fragile, NAME, {})
    await send_tails(cluster)
    await cluster.wait_until(lambda: actor.handled == 1 and actor.turns >= 2)
    cluster._supervisor.mailbox.send(NAME, lifecycle.Stop())
    assert await status_of(cluster) == 0
    assert actor.has_stopped
    assert cluster.faults == []


@pytest.mark.parametrize(("kind", "doing"), [(FailsInHandler, "Tails"), (FailsAfterMail, "after_mail")])
async def test_an_error_ends_the_actor_with_a_fault_that_says_where(
    cluster: MemoryCluster, kind: type[Fragile], doing: str
) -> None:
    actor = cluster.start(kind, NAME, {})
    await send_tails(cluster)
    assert await status_of(cluster) == ExitCode.FAULT
    (fault,) = cluster.faults
    assert fault.doing == doing
    assert f"broken at {doing}" in fault.reason
    assert "_fail_at" in fault.traceback
    assert not actor.has_stopped
    cluster.faults.clear()


async def test_an_error_at_the_start_is_a_fault_without_a_ready(cluster: MemoryCluster) -> None:
    cluster.start(FailsAtStart, NAME, {})
    assert await status_of(cluster) == ExitCode.UNUSABLE  # another start would fail in the same way
    assert [(fault.doing, fault.is_final) for fault in cluster.faults] == [("start", True)]
    assert NAME not in cluster.up
    cluster.faults.clear()


async def test_an_error_outside_of_the_loop_ends_it_and_the_first_one_is_reported(cluster: MemoryCluster) -> None:
    actor = cluster.start(Fragile, NAME, {})
    await cluster.wait_until(lambda: NAME in cluster.up)
    actor.fail("a timer", RuntimeError("too late"))
    actor.fail("a thread", RuntimeError("a consequence"))
    assert await status_of(cluster) == ExitCode.FAULT
    (fault,) = cluster.faults
    assert (fault.doing, "too late" in fault.reason) == ("a timer", True)
    cluster.faults.clear()


async def test_a_message_without_a_handler_is_noticed_before_the_actor_starts() -> None:
    class Deaf(Actor):
        """Handles nothing."""

    cluster = MemoryCluster()
    with pytest.raises(AssertionError, match="speculation/0 has no handler for \\['Tails'\\]"):
        cluster.start(Deaf, NAME, {})
    await cluster.close()


async def test_an_actor_with_nothing_to_finish_is_drained_at_once(cluster: MemoryCluster) -> None:
    cluster.start(Fragile, NAME, {})
    await cluster.wait_until(lambda: NAME in cluster.up)
    cluster._supervisor.mailbox.send(NAME, lifecycle.Drain(deadline_s=5.0))
    await cluster.wait_until(lambda: cluster.drained == {NAME})


async def test_a_slow_handler_is_logged(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.actor._SLOW_HANDLER_S", -1.0)
    warnings: list[tuple[str, object]] = []
    actor = cluster.start(Fragile, NAME, {})
    monkeypatch.setattr(actor.log, "warning", lambda event, **fields: warnings.append((event, fields["kind"])), raising=False)
    await send_tails(cluster)
    await cluster.wait_until(lambda: bool(warnings))
    assert warnings == [("slow handler", "Tails")]


async def test_timers_have_their_turn_in_the_middle_of_much_mail(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.actor._TURN_S", -1.0)
    order: list[str] = []

    class Busy(Fragile):
        """Says when it handles a message, and when a timer that is due then has its turn."""

        def on_tails(self, delivery: object, message: drafts.Tails) -> None:
            order.append("mail")
            asyncio.get_running_loop().call_soon(order.append, "timer")
            super().on_tails(delivery, message)

    actor = cluster.start(Busy, NAME, {})
    await cluster.wait_until(lambda: NAME in cluster.up)
    scheduler = ScriptedActor(cluster, "scheduler/0")
    cluster.introduce(scheduler)
    await cluster.settle(20)
    for _ in range(3):
        scheduler.mailbox.send(NAME, tails())
    await cluster.wait_until(lambda: actor.handled == 3 and len(order) == 6)
    assert order == ["mail", "timer"] * 3
