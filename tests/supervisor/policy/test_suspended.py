"""Which children that are stopped from outside are killed, and when; the clock is a number."""

from __future__ import annotations

from dataclasses import replace

from tests.support.supervisor.liveness_clock import AT_WORK, NAME, SUSPENDED, Clock, ready_clock
from tests.support.supervisor.trees import DEADLINES


def assert_killed_within_0_9_s(clock: Clock) -> None:
    """The child is left alone for 0.6 s and counts as frozen 0.3 s later."""
    assert clock.run(0.6) == []
    assert clock.run(0.3)[0] == "frozen: it does not run"


def test_a_suspended_child_is_frozen_after_three_beats() -> None:
    clock = ready_clock()
    clock.sample = SUSPENDED
    assert clock.run(1.4) == []
    assert clock.run(0.3)[0].startswith("frozen: no Progress for 1.5 s")


def test_a_suspended_child_that_may_continue_is_told_so_once_before_it_is_killed() -> None:
    clock = ready_clock(replace(DEADLINES, continue_s=1.0))
    clock.sample = SUSPENDED
    assert clock.run(0.9) == []
    assert clock.n_continued == 0
    assert clock.run(0.5) == []
    assert clock.n_continued == 1
    assert clock.run(0.3)[0].startswith("frozen: no Progress for 1.5 s")
    assert clock.n_continued == 1


def test_a_suspended_child_that_may_continue_is_told_so_before_a_new_supervisor_kills_it() -> None:
    """It holds what a stopped process of the same moment needs, so it must not die with that one."""
    clock = ready_clock(replace(DEADLINES, continue_s=1.0))
    clock.liveness.spawned(NAME, replace(DEADLINES, continue_s=1.0), clock.now_s, is_adopted=True)
    clock.liveness.became_ready(NAME, clock.now_s)
    clock.sample = SUSPENDED
    assert clock.run(0.4) == []
    assert clock.n_continued == 1
    assert clock.run(0.2)[0] == "frozen: it does not run"  # a debugger holds it
    clock.sample = AT_WORK
    assert clock.run(1.0) == []


def test_a_child_that_continued_may_do_so_again_after_a_beat() -> None:
    clock = ready_clock(replace(DEADLINES, continue_s=1.0))
    for n_continued in (1, 2):
        clock.sample = SUSPENDED
        assert clock.run(1.2) == []
        assert clock.n_continued == n_continued
        clock.sample = AT_WORK
        assert clock.run(0.1, beat=(0, 0.0, 0.0)) == []


def test_a_child_that_is_known_to_be_stopped_has_its_time_from_then_on() -> None:
    """Neither a late beat nor an early one changes that."""
    for before_s in (0.0, 0.4, 0.9):
        clock = ready_clock()
        clock.run(before_s)
        clock.sample = SUSPENDED
        clock.liveness.seen(NAME, True, clock.now_s)
        clock.liveness.beat(NAME, 0, 0.0, clock.now_s + 0.01)  # it was on its way
        assert clock.run(DEADLINES.suspended_s - 0.1) == []
        assert clock.run(0.3)[0] == "frozen: it does not run"


def test_a_child_that_goes_on_and_is_stopped_again_has_all_of_its_time() -> None:
    for is_told in (True, False):  # of children that another supervisor has started the kernel says nothing
        clock = ready_clock()
        for _ in range(3):
            clock.sample = SUSPENDED
            clock.liveness.seen(NAME, True, clock.now_s)
            assert clock.run(DEADLINES.suspended_s - 0.2) == []
            clock.sample = AT_WORK
            if is_told:
                clock.liveness.seen(NAME, False, clock.now_s)
            assert clock.run(0.2, beat=(0, 0.0, 0.0)) == []


def test_a_child_that_was_stopped_while_its_watcher_did_not_run_has_had_its_time() -> None:
    """The others have sent a beat before it is killed."""
    for pause_s in (1.0, 8.0):
        clock = ready_clock()
        clock.run(0.2)
        clock.sample = SUSPENDED
        clock.now_s += pause_s
        assert clock.liveness.overdue(clock.now_s) == []
        assert_killed_within_0_9_s(clock)


def test_an_adopted_child_that_is_stopped_has_had_its_time() -> None:
    clock = Clock()
    clock.liveness.spawned(NAME, DEADLINES, 0.0, is_adopted=True)
    clock.liveness.became_ready(NAME, 0.0)
    clock.sample = SUSPENDED
    assert clock.run(0.3) == []
    assert clock.run(0.2)[0] == "frozen: it does not run"


def test_an_adopted_child_that_runs_is_watched_as_any_other() -> None:
    clock = Clock()
    clock.liveness.spawned(NAME, DEADLINES, 0.0, is_adopted=True)
    clock.liveness.became_ready(NAME, 0.0)
    clock.sample = AT_WORK
    assert clock.run(DEADLINES.frozen_s - 0.2) == []
    assert clock.run(0.1, beat=(0, 0.0, 0.0)) == []
    clock.sample = SUSPENDED
    assert clock.run(1.4) == []
    assert clock.run(0.3)[0].startswith("frozen: no Progress for 1.5 s")
