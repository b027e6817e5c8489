"""Who of supervisor and parent counts as frozen; each look is half a second."""

from __future__ import annotations

from itertools import count

from supervisor.parent.silence import FROZEN_S, LOOK_EVERY_S, POLL_EVERY_S, STOPPED_LOOKS, Silence, Stops
from supervisor.policy.own_time import ProcessSample

IDLE = ProcessSample(is_suspended=False, waits_for_disk=False, run_delays_s={1: 0.0})
STOPPED = ProcessSample(is_suspended=True, waits_for_disk=False, run_delays_s={1: 0.0})


def test_a_silent_process_is_frozen_after_some_looks() -> None:
    silence = Silence(lambda: STOPPED)
    assert [silence.poll() > FROZEN_S for _ in range(6)] == [False] * 5 + [True]
    assert silence.is_suspended


def test_each_word_begins_anew() -> None:
    silence = Silence(lambda: IDLE)
    for _ in range(10):
        assert max(silence.poll() for _ in range(5)) <= FROZEN_S
        silence.heard()


def test_a_process_that_gets_no_core_is_not_frozen() -> None:
    delays_s = count(0.0, 0.5)
    silence = Silence(lambda: ProcessSample(is_suspended=False, waits_for_disk=False, run_delays_s={1: next(delays_s)}))
    assert max(silence.poll() for _ in range(100)) == 0.0


def test_where_the_kernel_says_nothing_all_time_counts() -> None:
    silence = Silence(lambda: None)
    assert max(silence.poll() for _ in range(7)) > FROZEN_S


def looks(stops: Stops, now_s: float, is_told: bool = False) -> list[bool]:
    """What the looks of half a second say."""
    return [stops.look(is_told and not n, now_s + 1.1 * n * LOOK_EVERY_S) for n in range(5)]


def test_a_stop_is_known_after_some_looks_from_the_word_of_the_kernel_on() -> None:
    samples = [STOPPED]
    stops = Stops(lambda: samples[-1])
    assert (looks(stops, 0.0), stops.wait_s) == ([False] * 5, POLL_EVERY_S), "nobody has said anything"
    assert looks(stops, 10.0, is_told=True) == [False] * STOPPED_LOOKS + [True, False]
    assert stops.look(True, 20.0) is False
    assert stops.wait_s == LOOK_EVERY_S
    assert stops.look(True, 20.01) is False, "so soon it is no other look"
    samples.append(IDLE)
    assert looks(stops, 20.2) == [False] * 5
    assert stops.wait_s == POLL_EVERY_S


def test_a_pause_of_the_one_that_looks_is_one_look() -> None:
    stops = Stops(lambda: STOPPED)
    assert not stops.look(True, 0.0)
    assert not stops.look(False, 60.0)
