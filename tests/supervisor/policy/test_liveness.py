"""Who is late, frozen or stuck; the clock is a number."""

from __future__ import annotations

from dataclasses import replace

from supervisor.policy.liveness import Liveness
from tests.support.supervisor.liveness_clock import AT_WORK, NAME, Clock, ready_clock
from tests.support.supervisor.trees import DEADLINES


def test_a_child_that_never_speaks_is_late() -> None:
    clock = Clock()
    assert clock.run(DEADLINES.hello_s - 0.2) == []
    assert clock.run(0.5)[0] == "late: no Hello within 30 s"


def test_a_child_that_loads_without_news_is_late() -> None:
    clock = Clock()
    clock.liveness.loading(NAME, 0.0)
    assert clock.run(DEADLINES.ready_s - 0.2) == []
    assert clock.run(0.5)[0].startswith("late: not ready")


def test_news_of_loading_starts_the_deadline_again() -> None:
    clock = Clock()
    for _ in range(10):
        clock.liveness.loading(NAME, clock.now_s)
        assert clock.run(DEADLINES.ready_s - 1.0) == []


def test_missing_beats_mean_frozen() -> None:
    clock = ready_clock()
    assert clock.run(DEADLINES.frozen_s - 0.2) == []
    assert clock.run(0.5)[0] == "frozen: no Progress for 5 s"


def test_idle_beats_mean_health() -> None:
    assert ready_clock().run(1000.0, beat=(7, 0.0, 0.0)) == []


def test_a_beating_loop_beside_a_stuck_step_is_stuck() -> None:
    clock = ready_clock()
    assert clock.run(1.0, beat=(7, DEADLINES.step_s - 1.0, 0.0)) == []
    assert clock.run(0.1, beat=(7, DEADLINES.step_s + 0.1, 0.0)) == ["stuck: step 8 has run for more than 20 s"]


def test_the_first_step_is_allowed_longer() -> None:
    clock = ready_clock()
    assert clock.run(0.1, beat=(0, DEADLINES.first_step_s - 1.0, 0.0)) == []
    assert clock.run(0.1, beat=(0, DEADLINES.first_step_s + 1.0, 0.0)) != []


def test_the_age_of_the_beat_counts_for_the_step() -> None:
    clock = ready_clock()
    assert clock.run(0.1, beat=(7, DEADLINES.step_s - 2.0, 0.0)) == []
    assert clock.run(3.0)[0].startswith("stuck")


def test_a_watcher_who_slept_does_not_judge() -> None:
    clock = ready_clock()
    clock.run(1.0, beat=(1, 0.0, 0.0))
    clock.now_s += 3600.0
    assert clock.liveness.overdue(clock.now_s) == []
    assert clock.run(DEADLINES.frozen_s - 0.5) == []
    assert clock.run(1.0) != []


def test_after_a_long_pause_of_the_watcher_everybody_has_all_of_its_time() -> None:
    clock = ready_clock()
    clock.run(DEADLINES.frozen_s - 0.2)  # the last beat was nearly too long ago
    clock.now_s += 8.0
    assert clock.liveness.overdue(clock.now_s) == []
    assert clock.run(DEADLINES.frozen_s - 0.1) == []
    assert clock.run(0.3) != []


def test_a_watcher_that_was_stopped_before_its_first_check_does_not_judge() -> None:
    """As a supervisor that has adopted children and is paused at once."""
    liveness, now_s = Liveness(0.1), 100.0
    liveness.spawned("a", DEADLINES, now_s)
    liveness.became_ready("a", now_s)
    now_s += 8.0
    assert liveness.overdue(now_s) == []
    assert liveness.overdue(now_s + DEADLINES.frozen_s - 0.1) == []


def test_a_short_stall_of_the_watcher_forgives_no_more_than_itself() -> None:
    clock = ready_clock()
    clock.run(DEADLINES.frozen_s - 0.2)
    clock.now_s += 1.0
    assert clock.liveness.overdue(clock.now_s) == []
    assert clock.run(0.4) != []


def test_nobody_judges_the_dead() -> None:
    clock = ready_clock()
    clock.liveness.gone(NAME)
    clock.liveness.beat(NAME, 1, 0.0, 0.0)
    assert clock.run(100.0) == []


def test_a_child_that_is_stopped_before_it_is_ready_is_frozen_long_before_it_is_late() -> None:
    clock = Clock()
    clock.liveness.seen(NAME, True, 0.0)
    assert clock.run(DEADLINES.frozen_s - 0.2) == []
    assert clock.run(0.5)[0] == "frozen: it has not run for 5 s"


def test_a_child_that_goes_on_in_time_is_not_frozen() -> None:
    clock = Clock()
    for _ in range(3):
        clock.liveness.seen(NAME, True, clock.now_s)
        assert clock.run(DEADLINES.frozen_s - 0.2) == []
        clock.liveness.seen(NAME, False, clock.now_s)
        assert clock.run(0.5) == []


def test_a_silent_child_that_is_not_suspended_is_not_told_to_continue() -> None:
    clock = ready_clock(replace(DEADLINES, continue_s=1.0))
    clock.sample = AT_WORK
    clock.run(DEADLINES.frozen_s + 0.5)
    assert clock.n_continued == 0


def test_a_silent_child_that_is_not_suspended_has_the_whole_time() -> None:
    clock = ready_clock()
    clock.sample = AT_WORK
    assert clock.run(DEADLINES.frozen_s - 0.2) == []
    assert clock.run(0.5)[0] == "frozen: no Progress for 5 s"


def test_a_child_that_gets_no_core_is_not_frozen_however_long_it_takes() -> None:
    clock = ready_clock()
    clock.starved = 0.999
    assert clock.run(600.0) == []


def test_a_child_that_gets_a_part_of_a_core_is_judged_by_that_part() -> None:
    clock = ready_clock()
    clock.starved = 0.75
    before_s = 1.5  # until the first sample all time counts
    assert clock.run(before_s + (DEADLINES.frozen_s - before_s) * 4 - 1.0) == []
    assert clock.run(2.0)[0].startswith("frozen")


def test_nobody_looks_at_a_child_that_beats() -> None:
    clock = ready_clock()
    clock.run(100.0, beat=(7, 0.1, 0.5))
    assert clock.n_samples == 0


def test_a_step_that_takes_longer_than_its_own_limit_is_stuck() -> None:
    clock = ready_clock()
    assert clock.run(10.0, beat=(7, 0.4, 0.5)) == []
    assert clock.run(0.4, beat=(8, 0.6, 0.5)) == []
    assert clock.run(0.4, beat=(8, 1.0, 0.5))[0].startswith("stuck: step 9 has run for more than 0.5 s, many times")


def test_a_step_is_not_stuck_because_a_beat_is_late() -> None:
    """A lossy link brings it a second later; a child that says nothing at all is frozen."""
    clock = ready_clock()
    clock.sample = AT_WORK
    assert clock.run(0.1, beat=(7, 0.01, 0.5)) == []
    assert clock.run(1.8) == []
    assert clock.run(0.1, beat=(90, 0.01, 0.5)) == []
    assert clock.run(DEADLINES.frozen_s + 0.5)[0].startswith("frozen")


def test_a_slow_step_that_gets_no_core_is_not_stuck() -> None:
    clock = ready_clock()
    clock.starved = 0.999
    assert clock.run(100.0, beat=(8, 5.0, 0.5)) == []


def test_time_without_a_core_before_the_limit_does_not_count_either() -> None:
    """A step of 2 s among many other processes: it has 0.4 s of its own when its limit is over, and 0.6 s more after that."""
    clock = ready_clock()
    clock.starved = 0.8
    for tenth in range(1, 50):
        assert clock.run(0.1, beat=(8, tenth / 10, 2.0)) == []
    clock.starved = 0.0
    assert clock.run(0.6, beat=(8, 4.9, 2.0)) == []
    assert clock.run(1.2, beat=(8, 6.5, 2.0))[0].startswith("stuck")


def test_the_next_step_starts_anew() -> None:
    clock = ready_clock()
    for step in range(20):
        assert clock.run(0.4, beat=(step, 0.6, 0.5)) == []


def test_a_step_of_unknown_shape_has_the_general_limit() -> None:
    clock = ready_clock()
    assert clock.run(1.0, beat=(8, DEADLINES.step_s - 1.0, 0.0)) == []
    assert clock.run(0.1, beat=(8, DEADLINES.step_s + 1.0, 0.0)) != []


def test_a_machine_that_stalls_as_a_whole_kills_nobody() -> None:
    """All processes stand still for five seconds, and so do their steps; then all go on, each with its next beat."""
    clock = ready_clock()
    clock.sample = AT_WORK
    clock.run(1.0, beat=(7, 0.1, 0.5))
    clock.now_s += 5.0
    assert clock.liveness.overdue(clock.now_s) == [], "the supervisor goes on first"
    assert clock.run(0.4) == []
    assert clock.run(0.4, beat=(7, 5.6, 0.5)) == [], "the step has had the time of the stall too"
    assert clock.run(60.0, beat=(8, 0.0, 0.0)) == []
