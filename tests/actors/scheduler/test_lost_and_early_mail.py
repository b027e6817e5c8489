"""The scheduler and mail that comes too early, too late, or twice."""

from __future__ import annotations

from actors.scheduler.hints import SPECULATION
from messages import drafts, steps
from messages.transport.outbox import WINDOW_MESSAGES
from messages.wire.arrays import int32s, int64s
from tests.support.memory_cluster import CollectingGateway, MemoryCluster, ScriptedActor
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of


async def test_mail_of_incarnations_that_are_announced_late_is_bounded_and_all_of_it_is_answered(
    cluster: MemoryCluster,
) -> None:
    """The supervisor is busy: both gateways send what their journals hold before the scheduler knows them."""
    bench = SchedulerBench(cluster)
    await bench.begin()
    early = [CollectingGateway(cluster, name=f"gateway/{i}") for i in (1, 2)]
    n = 2 * WINDOW_MESSAGES + 100
    for gateway in early:
        gateway.mailbox.connect("scheduler/0", 1, cluster.up["scheduler/0"].endpoint)
        for attempt in range(1, n + 1):
            gateway.submit(attempt, [attempt % 900 + 1], 1)
    await cluster.settle()
    assert len(bench.scheduler._early) == 2 * WINDOW_MESSAGES
    for gateway in early:
        cluster.introduce(gateway)
    await cluster.wait_until(lambda: all(len(gateway.endings) == n for gateway in early))


async def test_a_submission_that_comes_twice_is_taken_once(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    bench.gang.hold()
    prompt = prompt_of(1, 30)
    bench.gateway.submit(1, prompt, 20)
    bench.gateway.submit(1, prompt, 20)
    await cluster.settle()
    assert bench.gateway.taken == {1}
    assert not bench.gateway.refused
    bench.gang.release_held()
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt, 20)


async def test_a_capacity_that_comes_twice_begins_nothing_while_plans_are_in_flight(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    prompt = prompt_of(1, 30)
    bench.gateway.submit(1, prompt, 40)
    await cluster.wait_until(lambda: len(bench.gateway.tokens[1]) > 5)
    bench.gang.hold()
    await cluster.settle()
    epoch, engine = bench.scheduler._gang.tracker.epoch, bench.gang.engine.capacity()
    answer = steps.Capacity(epoch=epoch, memory_generation=bench.gang.memory_generation, engine=engine)
    bench.gang.mailbox.send("scheduler/0", answer)
    await cluster.settle()
    bench.gang.release_held()
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt, 40)
    assert sum(len(plan.new) for plan in bench.gang.plans) == 1


class LateSpeculation(ScriptedActor):
    """Answers each report of tokens when the test says so."""

    wanted: tuple[tuple[int, int], ...] = ()

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, drafts.Tails):
            rows = zip(message.sequences.tolist(), message.starts.tolist(), message.counts.tolist(), strict=True)
            self.wanted += tuple((number, start + count) for number, start, count in rows if count >= 0)

    def answer(self) -> None:
        """Send a draft of one token for everything reported so far."""
        n = len(self.wanted)
        numbers, starts = int64s([number for number, _ in self.wanted]), int32s([start for _, start in self.wanted])
        self.mailbox.send(
            "scheduler/0", drafts.Drafts(sequences=numbers, starts=starts, counts=int32s([1] * n), ids=int32s([1] * n))
        )


async def test_drafts_that_come_after_the_end_of_their_sequence_are_not_kept(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    speculation = LateSpeculation(cluster, SPECULATION)
    cluster.introduce(speculation)
    await cluster.settle(20)
    for attempt in range(1, 11):
        bench.gateway.submit(attempt, [attempt, 2, 3], 6, speculation=True)
    await bench.ended(10)
    assert speculation.wanted
    speculation.answer()
    await cluster.settle(20)
    assert len(bench.scheduler._hints.drafts) == 0
