"""Paces, waiting attempts and budgets: slowness is measured against the replica itself, and nobody's pause counts."""

from __future__ import annotations

import random

from actors.gateway.dispatch.breakers.breaker import BreakerState
from actors.gateway.dispatch.breakers.pace import Pace
from actors.gateway.dispatch.breakers.queue_balance import QueueBalance, QueueFacts
from actors.gateway.dispatch.breakers.replica_health import ReplicaHealth
from actors.gateway.dispatch.breakers.retry_budget import RetryBudget

A, B = "scheduler/0", "scheduler/1"


def answer(health: ReplicaHealth, attempt: int, n_tokens: int, wait_s: float, now_s: float) -> None:
    """One attempt that begins after `wait_s`; the look comes every quarter of a second."""
    health.sent(A, attempt, n_tokens, 0, now_s, is_probe=False)
    looks = int(wait_s / 0.25) + 1
    for look in range(1, looks + 1):
        health.look(A, lambda attempt: int(look == looks), now_s + look * 0.25)  # noqa: B023  is called at once


def learned() -> ReplicaHealth:
    health = ReplicaHealth()
    for attempt in range(1, 21):
        answer(health, attempt, 1_000, 0.2, attempt * 1.0)
    return health


def test_ten_thousand_long_prefills_open_no_breaker() -> None:
    """Prompts of 500 to 100,000 tokens at a pace that varies by half, behind up to three others; some clients leave."""
    chance, health, now_s, n_open = random.Random(7), ReplicaHealth(), 0.0, 0
    for attempt in range(1, 10_001):
        n_tokens = int(10 ** chance.uniform(2.7, 5.0)) * chance.randint(1, 4)
        wait_s = n_tokens * 5e-5 * chance.uniform(0.7, 1.5)
        health.sent(A, attempt, n_tokens, 0, now_s, is_probe=False)
        if chance.random() < 0.05:
            health.closed(A, attempt, 0, now_s + wait_s / 2)
        else:
            health.look(A, lambda attempt: 0, now_s + wait_s / 2)
            health.look(A, lambda attempt: 1, now_s + wait_s)
        now_s += wait_s
        n_open += health.state(A, now_s) is not BreakerState.CLOSED
    assert n_open == 0


def test_attempts_that_wait_for_ever_open_the_breaker() -> None:
    health = learned()
    for attempt in range(100, 106):
        health.sent(A, attempt, 1_000, 0, 100.0, is_probe=False)
    opens = [health.look(A, lambda attempt: 0, 100.0 + look * 0.25)[1] for look in range(60)]
    assert opens.count(True) == 1
    assert health.admitted([A, B], 115.0) == [B]
    assert health.admitted([A], 115.0) == [A], "a breaker alone refuses nothing"
    assert health.probe_due([A, B], 130.0) == A


def test_three_late_ones_in_a_row_open_the_breaker_after_many_in_time() -> None:
    """A busy replica becomes slow, and gets little from then on: late ones will never be half of all outcomes of late."""
    health = learned()
    for attempt in range(100, 300):
        answer(health, attempt, 1_000, 0.2, 100.0 + (attempt - 100) * 0.05)
    for attempt, at_s in ((300, 111.0), (301, 111.5), (302, 112.0)):
        health.sent(A, attempt, 1_000, 0, at_s, is_probe=False)
    opens = [health.look(A, lambda attempt: 0, 112.0 + look * 0.25)[1] for look in range(20)]
    assert opens.count(True) == 1


def test_late_ones_between_others_in_time_open_nothing() -> None:
    health, now_s = learned(), 100.0
    for attempt in range(100, 160):
        is_late = attempt % 4 == 0
        answer(health, attempt, 1_000, 4.0 if is_late else 0.2, now_s)
        now_s += 0.3
    assert health.n_openings(A) == 0


def test_a_pause_of_the_gateway_itself_makes_nothing_late() -> None:
    health = learned()
    for attempt in range(100, 106):
        health.sent(A, attempt, 1_000, 0, 100.0, is_probe=False)
    health.look(A, lambda attempt: 0, 100.25)
    assert health.look(A, lambda attempt: 0, 160.0) == (0, False)
    health.look(A, lambda attempt: 1, 160.25)
    assert health.state(A, 160.25) is BreakerState.CLOSED


def test_nothing_is_slow_before_enough_is_known() -> None:
    pace = Pace()
    for _ in range(7):
        pace.observe(0.1, 100)
    assert pace.limit_s(100) == float("inf")
    pace.observe(0.1, 100)
    assert 1.7 < pace.limit_s(100) < 1.9
    for _ in range(200):
        pace.observe(10.0, 100)
    assert pace.limit_s(100) > 10.0, "what is always slow is its pace"


def test_a_budget_refills_with_time_and_with_work() -> None:
    budget = RetryBudget()
    assert sum(budget.take(0.0) for _ in range(500)) == 100
    assert sum(budget.take(1.0) for _ in range(500)) == 10
    for _ in range(40):
        budget.submitted()
    assert sum(budget.take(1.0) for _ in range(500)) == 10


def test_queues_move_only_from_far_longer_ones_twice_in_a_row() -> None:
    balance = QueueBalance()
    slow, quick = QueueFacts(10_000, 0.001, takes_work=True), QueueFacts(0, 0.0005, takes_work=True)
    assert balance.tokens_to_move({A: slow, B: quick}, 2) == {}
    assert balance.tokens_to_move({A: slow, B: quick}, 2) == {A: 3333}
    near = QueueFacts(1_900, 0.001, takes_work=True)
    for _ in range(5):
        assert balance.tokens_to_move({A: near, B: QueueFacts(1_000, 0.001, takes_work=True)}, 1) == {}


def test_all_leaves_a_replica_that_takes_no_work_if_another_one_does() -> None:
    balance = QueueBalance()
    shut, ready = QueueFacts(100, None, takes_work=False), QueueFacts(100, None, takes_work=True)
    assert balance.tokens_to_move({A: shut, B: ready}, 1)[A] > 1 << 60
    assert balance.tokens_to_move({A: shut, B: shut}, 1) == {}
