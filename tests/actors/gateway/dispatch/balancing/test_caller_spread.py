"""Each caller has its share of every replica: its sequences are spread as they come, and what waits moves where it has less."""

from __future__ import annotations

import random

import pytest

from actors.gateway.dispatch.balancing.caller_spread import CallerSpread
from actors.gateway.dispatch.balancing.choice import make_strategy
from actors.gateway.dispatch.balancing.strategy import Candidate, Choice, ChoiceReason
from actors.gateway.requests.request import GrowingSequence
from messages.generation.sequences import Refused
from tests.support.dispatch.dispatcher_bench import DispatcherBench

A, B, C = "scheduler/0", "scheduler/1", "scheduler/2"
SMALL, BIG = b"small", b"big"


def report(bench: DispatcherBench, name: str, waiting: int, rate: float = 200.0) -> None:
    """A replica with eight sequences in its slots, and with others that wait."""
    bench.report(name, waiting=waiting, running=8, waiting_tokens=100 * waiting, running_tokens=800, rate=rate)


def count(sequences: list[GrowingSequence], name: str) -> int:
    return sum(one.scheduler == name for one in sequences)


@pytest.mark.parametrize(("are_told_apart", "waiting"), [(True, 80), (True, 0), (False, 80)])
def test_the_sequences_of_a_caller_are_spread_while_others_wait(waiting: int, *, are_told_apart: bool) -> None:
    chance, bench = random.Random(1), DispatcherBench(A, B, C, are_told_apart=are_told_apart)
    for name in (A, B, C):
        report(bench, name, waiting)
    small = [bench.submit([1] * 16, caller=SMALL)[0] for _ in range(18)]
    big = [bench.submit([1] * 16, caller=BIG)[0] for _ in range(180)]
    furthest = 0
    for turn in range(2_000):
        bench.post.clock_s += 0.05
        some, caller = (small, SMALL) if turn % 4 == 0 else (big, BIG)
        index = chance.randrange(len(some))
        bench.dispatcher.remove(some[index], None)
        some[index] = bench.submit([1] * 16, caller=caller)[0]
        furthest = max(furthest, *(abs(count(small, name) - 6) for name in (A, B, C)))
    assert (furthest <= 1) is (are_told_apart and waiting > 0), "off it costs nothing, and changes nothing"


def test_a_common_beginning_keeps_no_caller_at_one_replica() -> None:
    prefix = make_strategy("prefix")
    has_all = [Candidate(A, 900, 0.0, 9, 300.0), Candidate(B, 900, 0.0, 0, 100.0)]
    assert prefix.choose(has_all, 50) == Choice(B, ChoiceReason.SPREAD)
    nearly_even = [Candidate(A, 900, 0.0, 9, 220.0), Candidate(B, 900, 0.0, 0, 180.0)]
    assert prefix.choose(nearly_even, 50).name == A


def test_what_is_above_the_mean_moves_when_it_is_so_twice_in_a_row() -> None:
    spread = CallerSpread()
    tokens = {A: {SMALL: 600, BIG: 5_000}, B: {SMALL: 200, BIG: 4_500}, C: {BIG: 4_800}}
    assert spread.tokens_to_move(tokens) == {}
    found = spread.tokens_to_move(tokens)
    assert found == {A: {SMALL: pytest.approx(600 - 800 / 3)}}, "what is nearly even stays"
    spread.forget()
    assert spread.tokens_to_move(tokens) == {}


def test_what_waits_of_a_caller_moves_to_where_it_has_less() -> None:
    bench = DispatcherBench(A, B, are_told_apart=True)
    bench.dispatcher.remove(bench.submit([1] * 96)[0], None)
    bench.post.names = [A]  # the other one has died
    small = [bench.submit([1] * 96, caller=SMALL)[0] for _ in range(8)]
    big = [bench.submit([1] * 96, caller=BIG)[0] for _ in range(4)]
    bench.post.names = [A, B]
    bench.dispatcher.scheduler_up(B)
    big += [bench.submit([1] * 96, caller=BIG)[0] for _ in range(4)]
    assert (count(small, A), count(big, A), count(big, B)) == (8, 4, 4)
    for one in small[:2]:
        one.accept(0, [5])
        bench.dispatcher.balancer.began(one)
    bench.look()
    bench.look()
    assert not bench.recalls(), "nobody waits by the reports, so nobody has to share"
    report(bench, A, 10)
    report(bench, B, 10)
    bench.look()
    bench.look()
    [(name, attempts)] = bench.recalls()
    assert (name, attempts) == (A, [one.attempt for one in small[:-5:-1]]), "half of them, the newest first"
    for attempt in attempts:
        bench.dispatcher.on_refused(Refused(attempt=attempt, code="overloaded", detail="", retryable=True))
    assert (count(small, A), count(small, B)) == (4, 4)
    bench.look()
    bench.look()
    assert len(bench.recalls()) == 1, "it is even now"


def test_one_that_passes_others_does_not_make_its_replica_look_quick() -> None:
    bench = DispatcherBench(A, B, are_told_apart=True)
    report(bench, A, 50)
    report(bench, B, 50)
    health, balancer = bench.dispatcher.balancer.health, bench.dispatcher.balancer
    for _ in range(30):  # at A a caller with few sequences is always next; at B all wait their turn
        old = [bench.submit([1] * 96, caller=BIG)[0] for _ in range(2)]
        bench.post.clock_s += 10.0
        new = [bench.submit([1] * 96, caller=SMALL)[0] for _ in range(2)]
        bench.post.clock_s += 0.1
        for one in [*sorted(new, key=lambda one: one.scheduler), *old]:
            if one in new and one.scheduler == B:
                continue
            one.accept(0, [5])
            balancer.began(one)
        for one in (*new, *old):
            bench.dispatcher.remove(one, None)
    pace_a_s, pace_b_s = health.s_per_token(A), health.s_per_token(B)
    assert pace_a_s is not None
    assert pace_b_s is not None
    assert pace_a_s == pytest.approx(pace_b_s, rel=0.2)


def test_a_replica_where_others_wait_is_no_slower_than_its_rate() -> None:
    bench = DispatcherBench(A, B, are_told_apart=True)
    balancer = bench.dispatcher.balancer
    for _ in range(40):  # one answers after 10 ms, the other one after 200 ms
        [sequence] = bench.submit([1] * 96)
        bench.post.clock_s += 0.01 if sequence.scheduler == A else 0.2
        sequence.accept(0, [5])
        balancer.began(sequence)
        bench.dispatcher.remove(sequence, None)
    assert balancer._slowness([A, B]) == {A: 1.0, B: pytest.approx(20.0, rel=0.1)}
    report(bench, A, 10, 300.0)
    report(bench, B, 10, 100.0)
    assert balancer._slowness([A, B]) == {A: 1.0, B: 3.0}
    report(bench, B, 0, 100.0)
    assert balancer._slowness([A, B])[B] > 15.0, "the rate of a replica where nobody waits may be an old one"
