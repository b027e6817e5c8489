"""Queued work moves off replicas that are slow, avoided or drained; what runs stays, and no sequence ends."""

from __future__ import annotations

import pytest

from actors.gateway.dispatch.breakers.breaker import BreakerState
from messages.generation.sequences import Refused, Taken
from messages.lifecycle.cordon import Cordon
from tests.support.dispatch.dispatcher_bench import DispatcherBench

A, B = "scheduler/0", "scheduler/1"


def report(bench: DispatcherBench, name: str, waiting_tokens: int) -> None:
    bench.report(name, waiting=waiting_tokens // 100, running=1, waiting_tokens=waiting_tokens, running_tokens=0, rate=1000.0)


def refuse(bench: DispatcherBench, attempt: int) -> None:
    bench.dispatcher.on_refused(Refused(attempt=attempt, code="overloaded", detail="", retryable=True))


def test_a_queue_that_is_far_too_long_gives_its_newest_sequences_to_another_replica() -> None:
    bench = DispatcherBench(A, B)
    report(bench, A, 0)
    report(bench, B, 50_000)
    waiting = [bench.submit([1] * 96)[0] for _ in range(40)]
    assert {one.scheduler for one in waiting} == {A}
    for one in waiting:
        bench.dispatcher.on_taken(Taken(attempt=one.attempt))
    waiting[-1].accept(0, [5])
    report(bench, A, 4000)
    report(bench, B, 0)
    bench.look()
    assert not bench.recalls(), "once is not enough"
    bench.look()
    [(name, attempts)] = bench.recalls()
    assert name == A
    assert attempts == [one.attempt for one in waiting[-2 : -2 - len(attempts) : -1]], "the newest that have not begun"
    assert 1500 < 100 * len(attempts) <= 2000, "half of the difference, in tokens"
    bench.look()
    bench.look()
    recalled = [attempt for _, some in bench.recalls() for attempt in some]
    assert len(recalled) == len(set(recalled)), "nothing is recalled twice"


def test_what_is_given_back_goes_to_another_replica_at_once_and_counts_as_no_loss() -> None:
    bench = DispatcherBench(A, B)
    sequence = bench.submit([1, 2, 3])[0]
    origin, attempt = sequence.scheduler, sequence.attempt
    sequence.is_recalled = True
    refuse(bench, attempt)
    assert (sequence.scheduler, sequence.n_losses) == (B if origin == A else A, 0)
    assert bench.dispatcher.moves.n_moved == 1
    assert bench.dispatcher.balancer.health.state(origin, 0.0) is BreakerState.CLOSED


def test_refusals_open_the_breaker_and_nothing_is_given_up_when_all_are_open() -> None:
    bench = DispatcherBench(A, B)
    for _ in range(12):
        sequence = bench.submit([1, 2, 3])[0]
        refuse(bench, sequence.attempt)
        bench.dispatcher._retry()
        refuse(bench, sequence.attempt)
        bench.dispatcher._retry()
        assert sequence.attempt, "it is at some replica"
    states = [bench.dispatcher.balancer.health.state(name, 0.0) for name in (A, B)]
    assert states == [BreakerState.OPEN, BreakerState.OPEN]
    assert (bench.given_up, bench.dispatcher.statistics()["open_breakers"]) == ([], 2)


def test_a_cordoned_replica_gets_nothing_new_and_keeps_what_it_has() -> None:
    bench = DispatcherBench(A, B)
    first = [bench.submit([1])[0] for _ in range(4)]
    assert {one.scheduler for one in first} == {A, B}
    bench.dispatcher.set_cordons([Cordon(replica=0)])
    before = [one.scheduler for one in first]
    assert {bench.submit([1])[0].scheduler for _ in range(4)} == {B}
    bench.look()
    assert (bench.recalls(), [one.scheduler for one in first]) == ([], before)
    bench.post.names = [A]
    bench.dispatcher.scheduler_down(B, "killed")
    assert bench.dispatcher.n_waiting == 4 + before.count(B), "they wait: an operator wants nothing there"
    bench.dispatcher.set_cordons([])
    assert bench.dispatcher.n_waiting == 0


def test_a_drained_replica_gives_its_queue_back_and_what_runs_leaves_at_the_end() -> None:
    bench = DispatcherBench(A, B)
    first = [bench.submit([1])[0] for _ in range(6)]
    at_a = [one.attempt for one in first if one.scheduler == A]
    bench.dispatcher.set_cordons([Cordon(replica=0, is_draining=True, end_s=5.0)])
    bench.look()
    assert bench.recalls() == [(A, sorted(at_a, reverse=True))]
    refuse(bench, at_a[-1])
    assert [one.attempt for one in first if one.scheduler == A] == at_a[:-1], "the others run, and stay"
    bench.look()
    assert len(bench.recalls()) == 1
    bench.post.clock_s = 5.0
    bench.look()
    assert {one.scheduler for one in first} == {B}
    assert not bench.given_up


def test_a_drain_without_another_replica_waits() -> None:
    bench = DispatcherBench(A, B)
    sequence = bench.submit([1])[0]
    bench.post.names = [sequence.scheduler]
    bench.dispatcher.set_cordons([Cordon(replica=int(sequence.scheduler[-1]), is_draining=True)])
    bench.look()
    assert sequence.attempt
    assert not bench.recalls()


@pytest.mark.parametrize("is_other_dead", [False, True])
def test_the_breaker_of_the_only_replica_in_use_closes_when_it_answers_again(*, is_other_dead: bool) -> None:
    bench = DispatcherBench(A, B)
    health, now_s = bench.dispatcher.balancer.health, 0.0
    for attempt in range(1, 5):
        health.failed(A, attempt, now_s)
    if is_other_dead:
        bench.post.names.remove(B)
    else:
        bench.dispatcher.set_cordons([Cordon(replica=1)])
    bench.post.clock_s = now_s = 2.0
    assert health.state(A, now_s) is BreakerState.HALF_OPEN
    [sequence] = bench.submit([1, 2, 3])
    assert sequence.scheduler == A
    sequence.accept(0, [5])
    bench.dispatcher.balancer.began(sequence)
    assert health.state(A, now_s) is BreakerState.CLOSED
