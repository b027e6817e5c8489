"""The dispatcher alone, with a clock and peers that the test owns: where sequences go, wait, are retried, and are given up."""

from __future__ import annotations

import pytest

from actors.gateway.dispatch.large_requests import SEQUENCES_A_TURN
from actors.gateway.requests.request_spec import Ended
from messages.caches import prefixes
from messages.generation.replica_state import ReplicaCondition, ReplicaState
from messages.generation.sequences import Holder, Refused, Taken
from messages.lifecycle.lifecycle import Cause
from messages.wire.message import NO_TRACE, Message
from tests.support.dispatch.dispatcher_bench import DispatcherBench

ONE = "scheduler/0"


def test_without_a_scheduler_a_sequence_waits_until_one_comes() -> None:
    bench = DispatcherBench()
    bench.submit([1], n=2)
    assert (bench.dispatcher.n_waiting, bench.post.sent) == (2, [])
    bench.post.names.append(ONE)
    bench.dispatcher.scheduler_up("scheduler/0")
    assert bench.dispatcher.n_waiting == 0
    assert [name for name, _ in bench.post.submits()] == [ONE, ONE]


def test_work_is_counted_after_its_message_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = DispatcherBench(ONE)
    counted, send = list[int](), bench.post.send

    def note_send(name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        counted.append(bench.dispatcher.balancer.load_tokens(ONE))
        send(name, message, trace)

    monkeypatch.setattr(bench.post, "send", note_send)
    bench.submit([1])
    assert counted == [0]
    assert bench.dispatcher.balancer.load_tokens(ONE) > 0


def test_a_full_mailbox_is_tried_again_later_and_less_and_less_often() -> None:
    bench = DispatcherBench(ONE)
    bench.post.full.add(ONE)
    bench.submit([1])
    delays_s = []
    for _ in range(12):
        assert bench.dispatcher.n_waiting == 1
        delays_s.append(bench.post.timers[-1].delay_s)
        bench.retry()
    assert delays_s == sorted(delays_s)
    assert delays_s[0] < delays_s[-1] == 1.0
    bench.post.full.clear()
    bench.retry()
    assert bench.dispatcher.n_waiting == 0
    assert len(bench.post.submits()) == 1


@pytest.mark.parametrize("is_retryable", [True, False])
def test_a_refusal_is_final_only_if_it_says_so(is_retryable: bool) -> None:
    bench = DispatcherBench(ONE)
    (sequence,) = bench.submit([1])
    refused = Refused(attempt=bench.last_attempt, code="too_long", detail="no room", retryable=is_retryable)
    bench.dispatcher.on_refused(refused)
    if is_retryable:
        assert (bench.given_up, bench.dispatcher.n_waiting) == ([], 1)
        bench.retry()
        assert len(bench.post.submits()) == 2
    else:
        assert bench.given_up == [(sequence, Ended(reason="failed", code="too_long", detail="no room"))]
        assert bench.dispatcher.n_waiting == 0
    bench.dispatcher.on_refused(refused)
    assert len(bench.given_up) == (not is_retryable), "the attempt is closed: a late refusal means nothing"


@pytest.mark.parametrize(("ids", "reason"), [([5, 6, 7, 8], "length"), ([5, 9], "stop")])
def test_what_was_complete_when_its_scheduler_died_is_not_submitted_again(ids: list[int], reason: str) -> None:
    bench = DispatcherBench(ONE)
    (sequence,) = bench.submit([1], stop_tokens=[9])
    sequence.accept(0, ids, n_cached=1)
    bench.dispatcher.scheduler_down(ONE, "killed")
    assert [(ended.reason, ended.n_cached) for _, ended in bench.given_up] == [(reason, 1)]
    assert len(bench.post.submits()) == 1


@pytest.mark.parametrize("cause", ["crashed", "hung", "killed"])
@pytest.mark.parametrize("is_taken", [True, False])
def test_only_deaths_that_the_request_may_have_caused_are_counted(cause: Cause, is_taken: bool) -> None:
    bench = DispatcherBench(ONE, resubmit_budget=2)
    bench.submit([1])
    for _ in range(5):
        if is_taken and not bench.given_up:
            bench.dispatcher.on_taken(Taken(attempt=bench.last_attempt))
        bench.dispatcher.scheduler_down(ONE, cause)
    is_given_up = is_taken and cause != "killed"
    assert [ended.detail for _, ended in bench.given_up] == ["given up after 3 lost attempts without progress"] * is_given_up
    assert len(bench.post.submits()) == (3 if is_given_up else 6)


def test_a_new_token_between_two_losses_starts_the_count_again() -> None:
    bench = DispatcherBench(ONE, resubmit_budget=1)
    (sequence,) = bench.submit([1])
    for token in range(3):
        bench.dispatcher.submit_again(sequence)
        sequence.accept(token, [token])
    assert bench.given_up == []
    bench.dispatcher.submit_again(sequence)
    bench.dispatcher.submit_again(sequence)
    assert len(bench.given_up) == 1


def test_end_all_ends_sequences_wherever_they_are() -> None:
    """At a scheduler, waiting for one, and waiting for the cache directory."""
    bench = DispatcherBench(ONE)
    at_scheduler = bench.submit([1])
    bench.post.names = []
    waiting = bench.submit([2])
    bench.post.names = [ONE, "scheduler/1", "cache_directory"]
    asked = bench.submit(list(range(64)))
    assert isinstance(bench.post.sent[-1][1], prefixes.FindPrefix)
    survivor = bench.submit(list(range(1, 65)))
    ended = Ended(reason="failed", code="quarantined", detail="x")
    bench.dispatcher.end_all(lambda sequence: sequence is not survivor[0], ended, "quarantined")
    assert [sequence for sequence, _ in bench.given_up] == [*at_scheduler, *waiting, *asked]
    assert [(name, cancel.why) for name, cancel in bench.post.cancels()] == [(ONE, "quarantined")]
    for timer in list(bench.post.timers):
        timer.run()  # the directory has not answered
    assert [submit.tokens.tolist()[0] for _, submit in bench.post.submits()] == [1, 1], "only the survivor follows"


def test_a_full_directory_is_not_waited_for() -> None:
    bench = DispatcherBench(ONE, "scheduler/1", "cache_directory")
    bench.post.full.add("cache_directory")
    bench.submit(list(range(64)))
    assert len(bench.post.submits()) == 1


def test_a_large_request_is_submitted_in_several_turns() -> None:
    bench = DispatcherBench("scheduler/0")
    sequences = bench.submit([1, 2, 3], n=3, n_prompts=200)
    n_turns = 1
    while len(bench.post.submits()) < len(sequences):
        n_before = len(bench.post.submits())
        assert bench.dispatcher.n_waiting == len(sequences) - n_before
        bench.post.timers[-1].run()
        assert 0 < len(bench.post.submits()) - n_before <= SEQUENCES_A_TURN
        n_turns += 1
    assert n_turns == 3
    assert [message.attempt for _, message in bench.post.submits()] == [sequence.attempt for sequence in sequences]
    assert bench.dispatcher.n_waiting == 0


def test_what_ends_before_its_turn_is_not_submitted() -> None:
    bench = DispatcherBench("scheduler/0")
    sequences = bench.submit([1, 2, 3], n_prompts=300)
    ended = Ended(reason="failed", code="internal")
    bench.dispatcher.end_all(lambda sequence: sequence.index != 299, ended, "withdrawn")
    assert [sequence for sequence, _ in bench.given_up] == sequences[:299]
    bench.post.timers[-1].run()
    assert [message.attempt for _, message in bench.post.submits()[SEQUENCES_A_TURN:]] == [sequences[299].attempt]


@pytest.mark.parametrize("names_holders", [False, True])
def test_a_replica_learns_which_other_one_has_the_prompt_if_it_can_ask_it(names_holders: bool) -> None:
    bench = DispatcherBench(ONE, "scheduler/1", "cache_directory", names_holders=names_holders)
    bench.post.names = [ONE]
    for _ in range(9):
        bench.submit(list(range(64)))
    bench.post.names = [ONE, "scheduler/1", "cache_directory"]
    bench.submit(list(range(64)))
    bench.dispatcher.on_prefix_found(prefixes.PrefixFound(query=1, replicas=[0], pages=[4]))
    name, submit = bench.post.submits()[-1]
    assert name == "scheduler/1", "the other one is far busier"
    assert submit.holder == (Holder(replica=0, pages=4) if names_holders else None)


def test_the_only_replica_that_can_compute_learns_what_another_one_has() -> None:
    bench = DispatcherBench(ONE, "scheduler/1", "cache_directory", names_holders=True)
    bench.dispatcher.on_state("scheduler/1", ReplicaState(condition=ReplicaCondition.DOWN, since_s=1.0))
    for timer in list(bench.post.timers):
        timer.run()
    bench.submit(list(range(64)))
    bench.dispatcher.on_prefix_found(prefixes.PrefixFound(query=1, replicas=[1], pages=[4]))
    name, submit = bench.post.submits()[-1]
    assert (name, submit.holder) == (ONE, Holder(replica=1, pages=4))
