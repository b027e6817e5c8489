"""Who of supervisor and parent counts as frozen; each look is half a second."""

from __future__ import annotations

from itertools import count

from supervisor.parent.silence import FROZEN_S, Silence
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
