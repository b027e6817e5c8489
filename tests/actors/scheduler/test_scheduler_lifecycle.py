"""The scheduler's actor when things go wrong around it: refused plans, stale answers, dead gateways, full links, draining."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from actors.cache_directory.directory_actor import DirectoryActor
from actors.cache_directory.settings import DirectorySettings
from actors.speculation.settings import SpeculationSettings
from actors.speculation.speculation_actor import SpeculationActor
from gpu_workers.settings import WorkerSettings
from messages import steps
from messages.errors import MailboxFull
from messages.wire.arrays import int32s
from messages.wire.message import NO_TRACE, Message
from tests.support.memory_cluster import CollectingGateway, Gang, MemoryCluster
from tests.support.metric_values import metric_value
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of


class RefusingGang(Gang):
    """Refuses some of its plans, naming these slots."""

    def __init__(self, cluster: MemoryCluster, settings: WorkerSettings, refused: set[int], slots: list[int]) -> None:
        super().__init__(cluster, settings)
        self._refused, self._slots = refused, slots
        self.n_plans = 0

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, steps.Plan) and message.epoch == self._epoch:
            self.n_plans += 1
            if self.n_plans in self._refused:
                failed = steps.StepFailed(
                    epoch=message.epoch, step=message.step, reason="row_counts: no", suspects=int32s(self._slots)
                )
                self.mailbox.send(sender, failed)
                self._epoch = -1  # what comes until the next Reset is not computed
                return
        super().handle(sender, message)


async def test_after_a_refused_plan_everything_is_computed_again_in_the_next_epoch(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    bench.gang.task.cancel()
    bench.gang = RefusingGang(cluster, WORKER, refused={3}, slots=[])
    await bench.begin()
    for i in range(3):
        bench.gateway.submit(i, prompt_of(i, 40), 30)
    await bench.ended(3)
    for i in range(3):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 40), 30)
    assert bench.scheduler.statistics()["epoch"] == 2
    assert metric_value(bench.scheduler.metrics.recomputed) > 0


async def test_the_sequence_that_is_named_alone_again_and_again_fails_and_the_others_go_on(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    bench.gang.task.cancel()
    bench.gang = RefusingGang(cluster, WORKER, refused={1, 2, 3}, slots=[0])
    await bench.begin()
    with capture_logs() as log:
        for i in range(2):
            bench.gateway.submit(i, prompt_of(i, 20), 10, x_request_id=f"client {i}")
        await bench.ended(2)
    reasons = sorted(ending.reason for ending in bench.gateway.endings.values())
    assert reasons == ["failed", "length"]
    (failed,) = [ending for ending in bench.gateway.endings.values() if ending.reason == "failed"]
    assert failed.detail == "row_counts: no"
    named = [line["requests"] for line in log if line["event"] == "step failed"]
    assert [len(requests) for requests in named] == [1, 1, 1]
    (forced,) = [line for line in log if line["event"] == "sequence ended by force"]
    assert (forced["request"], forced["x_request_id"]) == (f"r{failed.attempt}", f"client {failed.attempt}")
    assert [forced["request"]] in named


async def test_answers_of_an_older_epoch_change_nothing(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    await cluster.kill("worker/0.0")
    bench.gang = Gang(cluster, WORKER, incarnation=2)
    cluster.introduce(bench.gang)
    await cluster.settle()
    assert bench.scheduler.statistics()["epoch"] == 2
    capacity = bench.gang.engine.capacity()
    empty = int32s([])
    for stale in (
        steps.Result(epoch=1, step=1, slots=empty, counts=empty, ids=empty, compute_s=0.0),
        steps.StepFailed(epoch=1, step=1, reason="no", suspects=empty),
        steps.Capacity(epoch=1, memory_generation=9, engine=capacity),
    ):
        bench.gang.mailbox.send("scheduler/0", stale)
    bench.gateway.submit(1, prompt_of(1, 20), 5)
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 20), 5)
    assert bench.scheduler.statistics()["epoch"] == 2


async def test_the_sequences_of_a_dead_gateway_free_their_slots_and_pages(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    other = CollectingGateway(cluster, name="gateway/1")
    cluster.introduce(other)
    bench.gang.hold()
    bench.gateway.submit(1, prompt_of(1, 40), 50)
    other.submit(1, prompt_of(2, 40), 50)  # the same attempt number, of another gateway
    await cluster.wait_until(lambda: bench.scheduler.statistics()["running"] == 2)
    await cluster.kill("gateway/1")
    await cluster.wait_until(lambda: bench.scheduler.statistics()["running"] == 1)
    bench.gang.release_held()
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 40), 50)
    await cluster.settle()
    assert bench.scheduler.statistics()["pages_held"] == 0


async def test_a_draining_scheduler_is_drained_when_its_last_sequence_has_ended(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    bench.gang.hold()
    bench.gateway.submit(1, prompt_of(1, 20), 5)
    await cluster.wait_until(lambda: bench.scheduler.statistics()["running"] == 1)
    bench.scheduler.drain(60.0)
    await cluster.settle()
    assert cluster.drained == set()
    bench.gang.release_held()
    await bench.ended(1)
    await cluster.wait_until(lambda: cluster.drained == {"scheduler/0"})


async def test_a_full_link_to_directory_or_speculation_loses_hints_and_nothing_else(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = SchedulerBench(cluster)
    cluster.start(SpeculationActor, "speculation/0", SpeculationSettings())
    directory = cluster.start(DirectoryActor, "cache_directory/0", DirectorySettings())
    await bench.begin()
    await cluster.wait_until(lambda: {"speculation/0", "cache_directory/0"} <= set(bench.scheduler.child.peers))
    send, refused = bench.scheduler.mailbox.send, []

    def send_some(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        if name in ("speculation/0", "cache_directory/0") and len(refused) < 6:
            refused.append(type(message).__name__)
            raise MailboxFull(name)
        send(name, message, trace)

    monkeypatch.setattr(bench.scheduler.mailbox, "send", send_some)
    for i in range(3):
        bench.gateway.submit(i, [5, 6, 7] * 20 + prompt_of(i, 20), 40, speculation=True)
    await bench.ended(3)
    assert {"Tails", "PagesSealed"} <= set(refused)
    for i in range(3):
        assert bench.gateway.tokens[i] == expected([5, 6, 7] * 20 + prompt_of(i, 20), 40)
    await cluster.settle()
    ledger = bench.scheduler._gang.ledger  # the directory has noticed the gap and asked for a snapshot
    assert ledger is not None
    assert len(directory._index) == len(ledger.inventory()) > 0


async def test_a_new_directory_gets_a_snapshot_and_none_while_the_gang_is_dead(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    bench.gateway.submit(1, prompt_of(1, 40), 5)
    await bench.ended(1)
    directory = cluster.start(DirectoryActor, "cache_directory/0", DirectorySettings())
    await cluster.wait_until(lambda: len(directory._index) == 2)
    await cluster.kill("cache_directory/0")
    await cluster.kill("worker/0.0")
    directory = cluster.start(DirectoryActor, "cache_directory/0", DirectorySettings(), incarnation=2)
    await cluster.settle()
    assert len(directory._index) == 0
    cluster.introduce(Gang(cluster, WORKER, incarnation=2, before=bench.gang))
    await cluster.wait_until(lambda: len(directory._index) == 2)
