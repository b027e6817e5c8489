"""A message between scheduler and gang that is delivered and not handled: an idle gang shows the loss."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec
import pytest

from actors.scheduler import scheduler_actor
from actors.scheduler.gang.idleness import Idleness
from messages import steps
from messages.wire.message import Message
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of


def test_the_same_debt_for_two_seconds_and_five_reports_is_a_loss() -> None:
    idleness = Idleness()
    assert [idleness.reported((1, 7), 0.5 * n) for n in range(6)] == [False] * 4 + [True] * 2


def test_reports_that_waited_in_the_inbox_prove_nothing() -> None:
    idleness = Idleness()
    assert not any(idleness.reported((1, 7), 100.0) for _ in range(50))
    assert idleness.reported((1, 7), 102.0)


def test_whoever_owes_nothing_or_gets_on_has_lost_nothing() -> None:
    idleness = Idleness()
    assert not any(idleness.reported(None, float(n)) for n in range(50))
    assert not any(idleness.reported((1, n), float(n)) for n in range(50))


class ForgetfulGang(Gang):
    """Overlooks one message to it, or one of its own, and says that it is idle."""

    def __init__(self, cluster: MemoryCluster, lost: type[Message], nth: int) -> None:
        super().__init__(cluster, msgspec.structs.replace(WORKER, max_lease_steps=1))
        self._lost, self._left = lost, nth
        send = self.mailbox.send
        self.mailbox.send = lambda name, message, trace=b"": None if self._is_lost(message) else send(name, message, trace)

    def handle(self, sender: str, message: object) -> None:
        if not self._is_lost(message):
            super().handle(sender, message)

    def tell_idle(self) -> None:
        self.mailbox.send(self.scheduler, steps.Idle())

    def _is_lost(self, message: object) -> bool:
        self._left -= isinstance(message, self._lost)
        return isinstance(message, self._lost) and self._left == 0


@pytest.mark.parametrize("kind", [steps.Reset, steps.Capacity, steps.Plan, steps.Result])
async def test_what_is_lost_is_computed_again(
    kind: type[Message], cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: Callable[[], int] = count().__next__
    monkeypatch.setattr(scheduler_actor.time, "monotonic", lambda: 1000.0 + 0.5 * seconds())
    bench = SchedulerBench(cluster, plans_in_flight=1)  # nothing comes after what is lost, so only idleness shows the loss
    bench.gang.task.cancel()
    bench.gang = gang = ForgetfulGang(cluster, kind, 5 if kind in (steps.Plan, steps.Result) else 1)
    await bench.begin()
    bench.gateway.submit(1, prompt_of(1, 40), 10)
    await cluster.settle(300)
    assert not bench.gateway.endings
    for _ in range(10):
        gang.tell_idle()
        await cluster.settle(20)
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 40), 10)
    assert bench.scheduler._gang.tracker.epoch == 2
