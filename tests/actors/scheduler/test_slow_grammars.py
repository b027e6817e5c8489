"""A sequence whose grammar is slow waits by itself: others are planned meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from actors.scheduler import scheduler_actor
from messages import steps
from messages.generation.grammar import Grammar, GrammarKind
from messages.steps import GrammarReport, GrammarRest
from messages.wire.message import Message
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of

SLOW = Grammar(kind=GrammarKind.LLGUIDANCE, text="slow")


class CompilingGang(Gang):
    """Compiles a grammar when the test says so, and says of each step that its slots with grammars must rest."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster, WORKER)
        capacity = self.engine.capacity
        self.engine.capacity = lambda: msgspec.structs.replace(capacity(), prepares_grammars=True)
        self.asked: list[steps.PrepareGrammar] = []
        self.rest_s = 0.0
        self._constrained: set[int] = set()
        send = self.mailbox.send
        self.mailbox.send = lambda name, message, trace=b"": send(name, self._with_rests(message), trace)

    def handle(self, sender: str, message: object) -> None:
        if isinstance(message, steps.PrepareGrammar):
            self.asked.append(message)
        if isinstance(message, steps.Plan):
            self._constrained |= {new.slot for new in message.new if new.grammar}
        super().handle(sender, message)

    def compile(self) -> None:
        """Answer the oldest question."""
        asked = self.asked.pop(0)
        self.mailbox.send(self.scheduler, steps.GrammarPrepared(epoch=asked.epoch, number=asked.number))

    def _with_rests(self, message: Message) -> Message:
        if not isinstance(message, steps.Result) or not self.rest_s:
            return message
        rests = [GrammarRest(slot=slot, wait_s=self.rest_s) for slot in message.slots.tolist() if slot in self._constrained]
        return msgspec.structs.replace(message, grammars=GrammarReport(rests=rests))


async def begun(cluster: MemoryCluster) -> tuple[SchedulerBench, CompilingGang]:
    bench = SchedulerBench(cluster)
    bench.gang.task.cancel()
    bench.gang = gang = CompilingGang(cluster)
    await bench.begin()
    return bench, gang


async def test_others_run_to_their_end_while_a_grammar_is_compiled(cluster: MemoryCluster) -> None:
    bench, gang = await begun(cluster)
    bench.gateway.submit(1, prompt_of(1, 20), 10, grammar=SLOW)
    bench.gateway.submit(2, prompt_of(2, 20), 30)
    await bench.ended(1)
    assert bench.gateway.tokens[2] == expected(prompt_of(2, 20), 30)
    assert [asked.text for asked in gang.asked] == ["slow"]
    assert not bench.gateway.tokens[1]
    gang.compile()
    await bench.ended(2)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 20), 10)


async def test_a_grammar_that_is_known_is_not_asked_for_again(cluster: MemoryCluster) -> None:
    bench, gang = await begun(cluster)
    for attempt in (1, 2):
        bench.gateway.submit(attempt, prompt_of(attempt, 20), 10, grammar=SLOW)
    await cluster.wait_until(lambda: bool(gang.asked))
    gang.compile()
    await bench.ended(2)
    bench.gateway.submit(3, prompt_of(3, 20), 10, grammar=SLOW)
    await bench.ended(3)
    assert gang.asked == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time of this process, in its only item."""
    now_s = [1000.0]
    monkeypatch.setattr(scheduler_actor.time, "monotonic", lambda: now_s[0])
    return now_s


async def test_a_question_without_an_answer_is_asked_again(cluster: MemoryCluster, clock: list[float]) -> None:
    bench, gang = await begun(cluster)
    bench.gateway.submit(1, prompt_of(1, 20), 10, grammar=SLOW)
    await cluster.wait_until(lambda: len(gang.asked) == 1)
    clock[0] += 3.0
    bench.scheduler.tick()
    await cluster.wait_until(lambda: len(gang.asked) == 2)
    assert gang.asked[0] == gang.asked.pop()
    gang.compile()
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 20), 10)


async def test_a_grammar_that_is_never_compiled_ends_its_request_alone(cluster: MemoryCluster, clock: list[float]) -> None:
    bench, _ = await begun(cluster)
    bench.gateway.submit(1, prompt_of(1, 20), 10, grammar=SLOW)
    bench.gateway.submit(2, prompt_of(2, 20), 10)
    await bench.ended(1)
    clock[0] += 61.0
    bench.scheduler.tick()
    bench.gateway.submit(3, prompt_of(3, 20), 10)
    await bench.ended(3)
    ending = bench.gateway.endings[1]
    assert (ending.reason, ending.code) == ("failed", "grammar_too_complex")
    assert ending.detail == "grammar: expected one that is compiled within 60 s"
    assert [bench.gateway.endings[attempt].reason for attempt in (2, 3)] == ["length", "length"]


async def test_a_new_epoch_asks_again(cluster: MemoryCluster) -> None:
    bench, gang = await begun(cluster)
    bench.gateway.submit(1, prompt_of(1, 20), 10, grammar=SLOW)
    await cluster.wait_until(lambda: bool(gang.asked))
    empty = steps.StepFailed(epoch=1, step=1, reason="no", suspects=steps.EMPTY_I32)
    gang.mailbox.send("scheduler/0", empty)
    await cluster.wait_until(lambda: len(gang.asked) == 2)
    gang.compile()  # of the epoch that is over: nobody waits for it
    await cluster.settle(50)
    assert not bench.gateway.tokens[1]
    gang.compile()
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 20), 10)


async def test_an_answer_rests_while_its_masks_are_computed(
    cluster: MemoryCluster, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, gang = await begun(cluster)
    wake: list[Callable[[], None]] = []
    monkeypatch.setattr(bench.scheduler._timer, "_fire", lambda: wake.append(lambda: bench.scheduler._plan_ahead()))
    gang.rest_s = 0.01
    bench.gateway.submit(1, prompt_of(1, 20), 6, grammar=SLOW)
    await cluster.wait_until(lambda: bool(gang.asked))
    gang.compile()
    await cluster.settle(100)
    n_first = len(bench.gateway.tokens[1])
    assert n_first in (1, 2), "a second step is planned before the first result says that masks are slow"
    bench.gateway.submit(2, prompt_of(2, 20), 40)
    await bench.ended(1)
    assert bench.gateway.tokens[2] == expected(prompt_of(2, 20), 40)
    for n in range(n_first, 6):
        assert len(bench.gateway.tokens[1]) == n, "it is not planned before its rest is over, nor ahead of a result"
        clock[0] += 0.02  # the timers of the event loop have the same clock
        await cluster.wait_until(lambda: bool(wake))
        wake.pop()()
        await cluster.settle(100)
        wake.clear()
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 20), 6)
