"""Queued work moves off replicas that are slow, avoided or drained; what runs stays, and no sequence ends."""

from __future__ import annotations

import pytest

from actors.gateway.dispatch.breakers.breaker import BreakerState
from messages.generation.recall import Recall
from messages.generation.replica_load import ReplicaLoad
from messages.generation.sequences import Refused, Taken
from messages.lifecycle.cordon import Cordon
from tests.support.dispatch.dispatcher_bench import DispatcherBench

A, B = "scheduler/0", "scheduler/1"
_LOOK_S = 0.25


def report(bench: DispatcherBench, name: str, number: int, waiting_tokens: int) -> None:
    load = ReplicaLoad(
        number=number, waiting=waiting_tokens // 100, running=1, waiting_tokens=waiting_tokens, running_tokens=0, pages_used=0,
        pages=9, prefill_rate=1000.0, decode_rate=0.0,
    )  # fmt: skip
    bench.dispatcher.loads.note(name, load)


def look(bench: DispatcherBench) -> None:
    """A quarter of a second passes."""
    bench.post.clock_s += _LOOK_S
    timer = bench.dispatcher.moves._timer
    assert timer is not None
    timer.run()  # type: ignore[attr-defined]


def recalls(bench: DispatcherBench) -> list[tuple[str, list[int]]]:
    return [(name, message.attempts.tolist()) for name, message in bench.post.sent if isinstance(message, Recall)]


def refuse(bench: DispatcherBench, attempt: int) -> None:
    bench.dispatcher.on_refused(Refused(attempt=attempt, code="overloaded", detail="", retryable=True))


def test_a_queue_that_is_far_too_long_gives_its_newest_sequences_to_another_replica() -> None:
    bench = DispatcherBench(A, B)
    report(bench, A, 1, 0)
    report(bench, B, 1, 50_000)
    waiting = [bench.submit([1] * 96)[0] for _ in range(40)]
    assert {one.scheduler for one in waiting} == {A}
    for one in waiting:
        bench.dispatcher.on_taken(Taken(attempt=one.attempt))
    waiting[-1].accept(0, [5])
    report(bench, A, 2, 4000)
    report(bench, B, 2, 0)
    look(bench)
    assert not recalls(bench), "once is not enough"
    look(bench)
    [(name, attempts)] = recalls(bench)
    assert name == A
    assert attempts == [one.attempt for one in waiting[-2 : -2 - len(attempts) : -1]], "the newest that have not begun"
    assert 1500 < 100 * len(attempts) <= 2000, "half of the difference, in tokens"
    look(bench)
    look(bench)
    recalled = [attempt for _, some in recalls(bench) for attempt in some]
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
    look(bench)
    assert (recalls(bench), [one.scheduler for one in first]) == ([], before)
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
    look(bench)
    assert recalls(bench) == [(A, sorted(at_a, reverse=True))]
    refuse(bench, at_a[-1])
    assert [one.attempt for one in first if one.scheduler == A] == at_a[:-1], "the others run, and stay"
    look(bench)
    assert len(recalls(bench)) == 1
    bench.post.clock_s = 5.0
    look(bench)
    assert {one.scheduler for one in first} == {B}
    assert not bench.given_up


def test_a_drain_without_another_replica_waits() -> None:
    bench = DispatcherBench(A, B)
    sequence = bench.submit([1])[0]
    bench.post.names = [sequence.scheduler]
    bench.dispatcher.set_cordons([Cordon(replica=int(sequence.scheduler[-1]), is_draining=True)])
    look(bench)
    assert sequence.attempt
    assert not recalls(bench)


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
