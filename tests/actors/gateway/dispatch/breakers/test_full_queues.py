"""Sequences that wait because the queues of replicas are full: who gets the places that become free."""

from __future__ import annotations

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import Ended
from messages.generation.sequences import Refused
from tests.support.dispatch.dispatcher_bench import DispatcherBench

ONE, OTHER = "scheduler/0", "scheduler/1"
DONE = Ended(reason="length")


def _refuse(bench: DispatcherBench, sequence: GrowingSequence) -> None:
    bench.dispatcher.on_refused(Refused(attempt=sequence.attempt, code="overloaded", detail="full", retryable=True))


def _end(bench: DispatcherBench, sequence: GrowingSequence) -> None:
    """Its scheduler has ended it."""
    bench.dispatcher.remove(sequence, None)
    sequence.end(DONE)
    bench.dispatcher.after_tokens()


def _submit(bench: DispatcherBench, priority: int = 0) -> GrowingSequence:
    (sequence,) = bench.submit([1], priority=priority)
    return sequence


def test_what_was_refused_for_now_gets_the_next_free_place_before_what_comes_later() -> None:
    bench = DispatcherBench(ONE)
    running, second, third = (_submit(bench) for _ in range(3))
    _refuse(bench, third)
    _refuse(bench, second)
    late = _submit(bench)
    assert late.attempt == 0, "it waits behind those that were refused"
    _end(bench, running)
    assert (bool(second.attempt), third.attempt, late.attempt) == (True, 0, 0)
    _end(bench, second)
    _end(bench, third)
    assert late.attempt, "it was the last one that waited"
    assert bench.dispatcher.n_waiting == 0


def test_a_place_goes_to_the_replica_where_it_is_free() -> None:
    bench = DispatcherBench(ONE, OTHER)
    running = [_submit(bench) for _ in range(4)]
    refused = running.pop()
    _refuse(bench, refused)
    free = running[0].scheduler
    _end(bench, running[0])
    assert refused.scheduler == free


def test_an_urgent_sequence_goes_before_those_that_wait() -> None:
    bench = DispatcherBench(ONE)
    running, refused = _submit(bench), _submit(bench)
    _refuse(bench, refused)
    urgent = _submit(bench, priority=-1)
    assert urgent.attempt, "nothing that waits goes first"
    _refuse(bench, urgent)
    _end(bench, running)
    assert (bool(urgent.attempt), refused.attempt) == (True, 0)


def test_where_one_replica_is_full_the_others_are_used() -> None:
    bench = DispatcherBench(ONE, OTHER)
    first, second = _submit(bench), _submit(bench)
    _refuse(bench, second)
    assert _submit(bench).attempt, "the other replica has refused nothing"
    _refuse(bench, first)
    assert not _submit(bench).attempt, "both are full"


def test_a_retry_submits_the_earliest_first() -> None:
    bench = DispatcherBench(ONE)
    first, second = _submit(bench), _submit(bench)
    _refuse(bench, second)
    _refuse(bench, first)
    bench.retry()
    assert first.attempt < second.attempt
    assert _submit(bench).attempt, "nothing waits any more"


def test_a_free_place_goes_to_the_caller_that_has_least_for_its_weight() -> None:
    bench = DispatcherBench(ONE, are_told_apart=True)
    running = [bench.submit([1], caller=b"flood")[0] for _ in range(4)]
    flood = [bench.submit([1], caller=b"flood")[0] for _ in range(6)]
    for one in flood:
        _refuse(bench, one)
    small = [bench.submit([1], caller=b"small", weight=3.0)[0] for _ in range(8)]
    for one in running:
        _end(bench, one)
    assert all(one.attempt for one in small[:3]), "the first ones, while the flood has more"
    assert not any(one.attempt for one in small[3:])
    assert [bool(one.attempt) for one in flood] == [True, False, False, False, False, False]
    bench.retry()
    again = sorted([*flood[1:], *small[3:]], key=lambda one: one.attempt)
    assert [one in small for one in again] == [False, True, True, True, False, True, True, False, False, False], "by turns"


def test_one_that_leaves_holds_nobody_back() -> None:
    bench = DispatcherBench(ONE)
    refused = _submit(bench)
    _refuse(bench, refused)
    bench.dispatcher.remove(refused, "client_left")
    assert _submit(bench).attempt


def test_another_model_is_not_held_back() -> None:
    bench = DispatcherBench(ONE, "scheduler/1000")
    refused = _submit(bench)
    _refuse(bench, refused)
    (other,) = bench.submit([1], model=1)
    assert other.scheduler == "scheduler/1000"
    _end(bench, other)
    assert not refused.attempt, "a free place of another model is none for it"
