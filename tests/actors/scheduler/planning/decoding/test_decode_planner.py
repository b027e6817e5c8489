"""Rows that are planned and applied together are those that are planned and applied one by one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from actors.scheduler.outgoing import Outgoing
from actors.scheduler.planning.rows.advance import Advance
from actors.scheduler.sequences.permission import Permission
from actors.scheduler.sequences.policy import PolicyName
from messages.generation.sequences import Tokens
from messages.steps import Plan
from messages.wire.codec import Codec
from tests.support.depth import at_depth
from tests.support.planner_bench import PlannerBench, next_token

TOGETHER, ONE_BY_ONE = Permission(), lambda sequence: True  # where it is not known who may run, each sequence is asked


def in_words(advances: Iterable[Advance]) -> list[tuple[object, ...]]:
    """What counts of these advances."""
    return [(one.row.sequence.number, one.row.start, one.first, one.ids, one.offset, one.ending) for one in advances]


def state_of(bench: PlannerBench) -> list[tuple[object, ...]]:
    """What is known of each running sequence."""
    return [(s.number, s.planned, s.in_flight, s.known, s.n_sealed, s.pages, s.stay) for s in bench.queues.running]


def random_terms(rng: random.Random, number: int) -> dict[str, Any]:
    """Terms of a sequence with this number; a few need more than a row of one token."""
    stops = [next_token_of(number, rng.randint(20, 60))] if rng.random() < 0.3 else []
    terms: dict[str, Any] = {"max_tokens": rng.randint(1, 60), "stop_tokens": stops, "priority": rng.randint(0, 2)}
    if rng.random() < 0.02:
        terms |= rng.choice([{"group_tokens": 3}, {"page_share": 0.5}])
    return terms


def next_token_of(number: int, position: int) -> int:
    """The token that the made-up model gives at this position."""
    return 100 + (number * 7919 + position * 104_729) % 900


@pytest.mark.parametrize("seed", range(at_depth(30)))
def test_plans_and_tokens_are_the_same(seed: int) -> None:
    rng, codec, n_together = random.Random(seed), Codec((Plan, Tokens)), 0
    settings = {"policy": rng.choice([name.value for name in PolicyName]), "plans_in_flight": rng.choice([1, 2, 3])}
    fields = {"n_pages": rng.choice([24, 64, 200]), "n_slots": rng.choice([3, 8, 16]), "max_lease_steps": rng.choice([1, 1, 4])}
    benches = [PlannerBench(settings, **fields) for _ in range(2)]
    for _ in range(150):
        if rng.random() < 0.4 and len(benches[0].queues) < 30:
            prompt, terms = [rng.randrange(100) for _ in range(rng.randint(1, 40))], random_terms(rng, benches[0]._number + 1)
            if fields["max_lease_steps"] > 1:
                del terms["stop_tokens"]  # the bench ends sequences only after the last step of a lease
            for bench in benches:
                bench.add(prompt, **terms)
        if rng.random() < 0.05 and benches[0].queues.running:
            place = rng.randrange(len(benches[0].queues.running))
            for bench in benches:
                bench.gang.release(bench.queues.running[place])
        if rng.random() < 0.01:
            for bench in benches:
                bench.die()
        if benches[0].plans and rng.random() < 0.5:
            advances = [in_words(bench.apply()) for bench in benches]
            assert advances[0] == advances[1]
        together, alone = benches[0].plan(TOGETHER), benches[1].plan(ONE_BY_ONE)
        assert (together is None) == (alone is None)
        if together is not None and alone is not None:
            assert codec.encode(together.plan) == codec.encode(alone.plan)
            assert (together.work, together.shape, together.n_rows) == (alone.work, alone.shape, alone.n_rows)
            assert alone.batch is None
            n_together += together.batch is not None
        assert state_of(benches[0]) == state_of(benches[1])
    assert n_together > 3


def decoding(n: int, **terms: Any) -> PlannerBench:
    """A bench with `n` sequences that decode."""
    bench = PlannerBench({"plans_in_flight": 1}, n_slots=8)
    for number in range(n):
        bench.add([number, 1, 2], **({"max_tokens": 40} | terms))
    while len(bench.queues.waiting) or not bench.queues.running:
        bench.plan()
        bench.apply()
    return bench


def test_the_batch_stays_while_nobody_comes_or_goes() -> None:
    bench = decoding(3)
    batches = []
    for _ in range(4):
        planned = bench.plan()
        assert planned is not None
        assert planned.batch is not None
        batches.append(planned.batch.batch)
        bench.apply()
    assert batches[1] is batches[2] is batches[3]
    bench.gang.release(bench.queues.running[1])
    planned = bench.plan()
    assert planned is not None
    assert planned.batch is not None
    assert [s.number for s in planned.batch.batch.sequences] == [1, 3]


def test_a_gateway_without_credit_and_a_draft_need_rows_of_their_own() -> None:
    bench = decoding(2, speculation=True)
    planned = bench.plan(Permission({"gateway/1"}))
    assert planned is not None
    assert planned.batch is None
    bench.apply()
    planned = bench.plan()  # the bench has drafts for none, but any could have some
    assert planned is not None
    assert planned.batch is None


def test_a_gateway_is_told_of_a_batch_and_of_other_rows_in_their_order() -> None:
    told = []
    for may_run in (TOGETHER, ONE_BY_ONE):
        bench, outgoing, codec = (
            decoding(3, stop_tokens=[next_token(decoding(3).queues.running[1], 8)]),
            Outgoing(),
            Codec((Tokens,)),
        )
        for step in range(8):
            if step == 3:
                bench.add([7, 7, 7], max_tokens=9)
            bench.plan(may_run)
            planned = bench.plans[0]
            advances = bench.gang.apply(bench._result(planned, 0))
            bench.plans.popleft()
            bench._pages_of.popleft()
            if (together := advances.together) is not None:
                for places in together.rows.batch.places_of.values():
                    outgoing.add_batch(together, places)
            for advance in advances.others:
                outgoing.add(advance, bench._result(planned, 0))
            for advance in advances.ended():
                bench.gang.release(advance.row.sequence)
            if step % 2:
                message = outgoing.take()
                assert message is not None
                told.append((may_run is TOGETHER, codec.encode(message)))
    assert [message for is_together, message in told if is_together] == [message for together, message in told if not together]
