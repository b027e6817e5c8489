"""The breaker's states, and that it opens for what fails and for nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.dispatch.breakers.breaker import Breaker, BreakerState


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker()
    for attempt in range(1, 5):
        breaker.failed(attempt, now_s)
    return breaker


def test_failures_open_it_and_one_probe_that_is_answered_closes_it() -> None:
    breaker = opened()
    assert (breaker.state(0.5), breaker.wants_probe(0.5)) == (BreakerState.OPEN, False)
    assert (breaker.state(1.0), breaker.wants_probe(1.0)) == (BreakerState.HALF_OPEN, True)
    breaker.begin_probe(9)
    assert not breaker.wants_probe(1.0), "one at a time"
    breaker.succeeded(8, 1.1)
    assert breaker.state(1.1) is BreakerState.HALF_OPEN, "that one was sent before"
    breaker.succeeded(9, 1.2)
    assert breaker.state(1.2) is BreakerState.CLOSED
    assert not breaker.failed(10, 1.3), "the past is forgotten"


def test_a_probe_that_fails_doubles_the_time() -> None:
    breaker, now_s = opened(), 0.0
    for open_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        assert breaker.state(now_s + open_s - 0.01) is BreakerState.OPEN
        now_s += open_s
        assert breaker.wants_probe(now_s)
        breaker.begin_probe(int(now_s) + 100)
        assert breaker.failed(int(now_s) + 100, now_s)
    assert breaker.n_openings == 8


def test_a_client_that_leaves_the_probe_makes_room_for_the_next_one() -> None:
    breaker = opened()
    breaker.begin_probe(9)
    breaker.left(9)
    assert breaker.wants_probe(1.0)


def test_a_death_ends_the_probe() -> None:
    breaker = opened()
    breaker.begin_probe(9)
    assert breaker.failed(0, 1.5, weight=2.0)
    assert breaker.state(2.0) is BreakerState.OPEN


def test_the_third_of_several_deaths_opens_it_whatever_is_answered_between_them() -> None:
    breaker, n = Breaker(), 0

    def answer(begin_s: float, end_s: float) -> None:
        nonlocal n
        while begin_s < end_s:
            n, begin_s = n + 1, begin_s + 0.02
            breaker.succeeded(n, begin_s)

    answer(0.0, 30.0)
    opens: list[bool] = []
    for second in (30.0, 31.0, 32.0):
        opens.append(breaker.failed(0, second, weight=2.0))
        answer(second, second + 1.0)
    assert opens == [False, False, True]
    breaker.begin_probe(n + 1)
    breaker.succeeded(n + 1, 33.5)
    assert breaker.state(33.5) is BreakerState.CLOSED
    assert not breaker.failed(n + 2, 33.6), "what it lost since is no death"
    assert breaker.failed(0, 33.7, weight=2.0), "a probe that is answered does not end a row of deaths"
    apart = Breaker()
    assert not any(apart.failed(0, 20.0 * turn, weight=2.0) for turn in range(10)), "deaths that are far apart open nothing"


def test_failures_that_are_rare_or_far_apart_open_nothing() -> None:
    rare, slow = Breaker(), Breaker()
    for turn in range(1000):
        now_s = turn * 0.01
        rare.failed(turn, now_s) if turn % 3 == 0 else rare.succeeded(turn, now_s)
        slow.failed(turn, turn * 4.0)
        assert rare.state(now_s) is slow.state(turn * 4.0) is BreakerState.CLOSED


@given(
    st.lists(st.tuples(st.sampled_from(["fail", "ok", "left", "probe"]), st.integers(1, 9), st.floats(0.0, 3.0)), max_size=60)
)
def test_it_always_comes_back_when_the_replica_does(steps: list[tuple[str, int, float]]) -> None:
    breaker, now_s = Breaker(), 0.0
    for what, attempt, pause_s in steps:
        now_s += pause_s
        if what == "fail":
            breaker.failed(attempt, now_s)
        elif what == "ok":
            breaker.succeeded(attempt, now_s)
        elif what == "left":
            breaker.left(attempt)
        elif breaker.wants_probe(now_s):
            breaker.begin_probe(attempt)
    for attempt in range(1, 10):
        breaker.left(attempt)
    now_s += 31.0
    if breaker.wants_probe(now_s):
        breaker.begin_probe(77)
        breaker.succeeded(77, now_s)
    assert breaker.state(now_s) is BreakerState.CLOSED
