"""Time in which a process was kept from running is not its own."""

from __future__ import annotations

import pytest

from supervisor.policy.own_time import OwnTime, ProcessSample


def sample(*delays_s: float, is_suspended: bool = False, waits_for_disk: bool = False) -> ProcessSample:
    return ProcessSample(is_suspended, waits_for_disk, dict(enumerate(delays_s)))


def own_s(*samples: ProcessSample | None) -> float:
    """The own time of a process that was looked at once a second."""
    own = OwnTime(0.0, samples[0])
    return [own.add_sample(float(second), one) for second, one in enumerate(samples[1:], 1)][-1]


def test_a_suspended_or_blocked_or_computing_process_has_all_time_for_itself() -> None:
    assert own_s(sample(3.0, 4.0), sample(3.0, 4.0), sample(3.0, 4.0)) == 2.0
    assert own_s(None, None, None) == 2.0
    assert own_s(sample(3.0), None, sample(9.0)) == 2.0


def test_the_run_delay_of_the_most_delayed_thread_is_not_its_own() -> None:
    assert own_s(sample(3.0, 4.0), sample(3.1, 4.9), sample(3.2, 5.9)) == pytest.approx(0.1)


def test_a_thread_that_is_new_has_no_delay_yet() -> None:
    assert own_s(sample(3.0), sample(3.0, 77.0), sample(3.0, 77.5)) == 1.5


def test_own_time_never_shrinks() -> None:
    assert own_s(sample(0.0), sample(1.5), sample(1.5)) == 1.0


def test_waiting_for_a_disk_is_forgiven_for_half_a_minute() -> None:
    waiting = sample(0.0, waits_for_disk=True)
    assert own_s(*[waiting] * 31) == 0.0
    assert own_s(*[waiting] * 41) == 10.0
    assert own_s(sample(0.0), waiting, sample(0.0)) == 2.0, "one look is not enough to know that it waited all the time"
