"""Logprobs keep their place when rows of several steps share a message; tokens in groups are told in time and all of them;
tokens do not wait for a plan that the gang does not wait for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from actors.scheduler.outgoing import Outgoing
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.planning.rows.advance import Advance
from actors.scheduler.planning.rows.row import Row
from actors.scheduler.sequences.sequence import Sequence
from messages.generation.logprobs import TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.sequences import Ending, Submit, Tokens
from messages.generation.terms import Terms
from messages.steps import Result
from messages.wire.arrays import float32s, int32s
from messages.wire.message import NO_TRACE, Message
from tests.support.memory_cluster import MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of


def advance(attempt: int, ids: list[int], offset: int) -> Advance:
    submit = Submit(
        attempt=attempt,
        request="r",
        tokens=int32s([1]),
        n_prompt=1,
        sampling=Sampling(),
        terms=Terms(max_tokens=9),
    )
    return Advance(Row(Sequence("gateway/0", submit, attempt), 0, 0, 0, 1, True, []), 0, ids, offset, None)


def cached(advance: Advance, n_tokens: int) -> Advance:
    """An advance of a sequence that found so many tokens."""
    advance.row.sequence.n_cached = n_tokens
    return advance


def result(ids: list[int], logprobs: list[float], width: int) -> Result:
    n = len(logprobs) * width
    some = TokenLogprobs(chosen=float32s(logprobs), width=width, top_ids=int32s(range(n)), top=float32s(range(n)))
    return Result(
        epoch=1,
        step=1,
        slots=int32s([0]),
        counts=int32s([len(ids)]),
        ids=int32s(ids),
        compute_s=0.0,
        logprobs=some if logprobs else None,
    )


def test_rows_of_different_widths_are_filled_up() -> None:
    outgoing = Outgoing()
    outgoing.add(cached(advance(1, [5], 0), 7), result([5], [], 0))
    outgoing.add(advance(2, [6, 7], 1), result([9, 6, 7], [-9.0, -1.0, -2.0], 2))
    outgoing.add(advance(3, [8], 0), result([8], [-3.0], 1))
    message = outgoing.take()
    assert message is not None
    assert message.ids.tolist() == [5, 6, 7, 8]
    assert message.cached.tolist() == [1, 0, 0], "at most the prompt"
    assert message.logprobs is not None
    assert message.logprobs.width == 2
    assert np.array_equal(message.logprobs.chosen, [np.nan, -1.0, -2.0, -3.0], equal_nan=True)
    assert message.logprobs.top_ids.reshape(4, 2).tolist() == [[-1, -1], [2, 3], [4, 5], [0, -1]]
    assert outgoing.take() is None


def stepped(outgoing: Outgoing, sequence: Sequence, ids: list[int]) -> Tokens | None:
    """One step gives a sequence these tokens; what its gateway is told then."""
    first = sequence.n_generated
    sequence.append(ids)
    outgoing.add(Advance(Row(sequence, 0, 0, 0, 1, True, []), first, ids, 0, None), result(ids, [], 0))
    return outgoing.take()


def test_tokens_in_groups_are_told_first_when_full_and_at_the_end() -> None:
    known = int32s([1, 2, 50, 51])  # two of the prompt, two that were generated before
    terms = Terms(max_tokens=99, group_tokens=4)
    submit = Submit(attempt=1, request="r", tokens=known, n_prompt=2, sampling=Sampling(), terms=terms)
    sequence, outgoing = Sequence("gateway/0", submit, 1), Outgoing()
    told = [stepped(outgoing, sequence, ids) for ids in ([52], [53], [54, 55], [56], [57], [58])]
    assert [None if message is None else (message.firsts.tolist(), message.ids.tolist()) for message in told] == [
        ([2], [52]), None, None, ([3], [53, 54, 55, 56]), None, None,
    ]  # fmt: skip
    outgoing.end(sequence, Ending(attempt=1, reason="length", n_cached=0))
    last = outgoing.take()
    assert last is not None
    assert (last.firsts.tolist(), last.ids.tolist(), len(last.endings)) == ([7], [57, 58], 1)
    outgoing.end(sequence, Ending(attempt=1, reason="length", n_cached=0))
    again = outgoing.take()
    assert again is not None
    assert len(again.ids) == 0, "nothing is told twice"


async def test_tokens_go_before_the_next_plan_while_the_gang_has_another_one(cluster: MemoryCluster) -> None:
    bench, sent = SchedulerBench(cluster), list[str]()
    mailbox = bench.scheduler.mailbox
    send, send_all = mailbox.send, mailbox.send_all

    def note_send(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        sent.append(type(message).__name__)
        send(name, message, trace)

    def note_send_all(names: list[str], message: Message) -> None:
        sent.append(type(message).__name__)
        send_all(names, message)

    mailbox.send, mailbox.send_all = note_send, note_send_all
    await bench.begin()
    bench.gang.hold()
    bench.gateway.submit(0, prompt_of(0, 40), 30)
    await cluster.wait_until(lambda: len(bench.gang.plans) == 2)
    await cluster.settle(20)
    orders = list[list[str]]()
    while len(bench.gang.plans) < 6:
        held = bench.gang.take_held()
        assert held
        for result in held:  # one at a time, so that the last one finds a gang without work
            sent.clear()
            bench.gang.mailbox.send("scheduler/0", result)
            await cluster.settle(20)
            orders.append([kind for kind in sent if kind in ("Plan", "Tokens")])
    bench.gang.release_held()
    await bench.ended(1)
    assert bench.gateway.tokens[0] == expected(prompt_of(0, 40), 30)
    assert ["Tokens", "Plan"] in orders
    assert all(order[0] == "Tokens" for order in orders if len(order) == 2), orders


async def test_the_last_tokens_of_all_leave_before_a_plan_is_looked_for(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    bench.gang.hold()
    bench.gateway.submit(1, prompt_of(1, 20), 1)
    await cluster.wait_until(lambda: bool(bench.gang._held))
    order, gang, send, plan = list[str](), bench.scheduler._gang, bench.scheduler.send, bench.scheduler._gang.plan

    def note_send(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        order.append(type(message).__name__)
        send(name, message, trace)

    def note_plan(*arguments: Any) -> PlannedStep | None:
        order.append("plan")
        return plan(*arguments)

    monkeypatch.setattr(bench.scheduler, "send", note_send)
    monkeypatch.setattr(gang, "plan", note_plan)
    bench.gang.release_held()
    await bench.ended(1)
    assert order.index("Tokens") < order.index("plan")
