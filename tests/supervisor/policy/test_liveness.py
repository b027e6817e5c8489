"""Who is late, frozen or stuck; the clock is a number."""

from __future__ import annotations

from supervisor.policy.liveness import Liveness
from tests.support.supervisor.trees import DEADLINES

NAME = "worker/0.0"


class Clock:
    """A watcher that looks every tenth of a second, as it should."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.liveness = Liveness(0.1)
        self.liveness.spawned(NAME, DEADLINES, 0.0)

    def run(self, seconds: float, beat: tuple[int, float] | None = None) -> list[str]:
        """Let time pass, with a beat at each look if there is one; returns the reasons of all verdicts."""
        reasons = []
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            if beat is not None:
                self.liveness.beat(NAME, *beat, self.now_s)
            reasons += [verdict.reason for verdict in self.liveness.check(self.now_s)]
        return reasons


def ready_clock() -> Clock:
    """A child that is ready at 0."""
    clock = Clock()
    clock.liveness.loading(NAME, 0.0)
    clock.liveness.became_ready(NAME, 0.0)
    return clock


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
    assert ready_clock().run(1000.0, beat=(7, 0.0)) == []


def test_a_beating_loop_beside_a_stuck_step_is_stuck() -> None:
    clock = ready_clock()
    assert clock.run(1.0, beat=(7, DEADLINES.step_s - 1.0)) == []
    assert clock.run(0.1, beat=(7, DEADLINES.step_s + 0.1)) == ["stuck: step 8 has run for more than 20 s"]


def test_the_first_step_is_allowed_longer() -> None:
    clock = ready_clock()
    assert clock.run(0.1, beat=(0, DEADLINES.first_step_s - 1.0)) == []
    assert clock.run(0.1, beat=(0, DEADLINES.first_step_s + 1.0)) != []


def test_the_age_of_the_beat_counts_for_the_step() -> None:
    clock = ready_clock()
    assert clock.run(0.1, beat=(7, DEADLINES.step_s - 2.0)) == []
    assert clock.run(3.0)[0].startswith("stuck")


def test_a_watcher_who_slept_does_not_judge() -> None:
    clock = ready_clock()
    clock.run(1.0, beat=(1, 0.0))
    clock.now_s += 3600.0
    assert clock.liveness.check(clock.now_s) == []
    assert clock.run(DEADLINES.frozen_s - 0.5) == []
    assert clock.run(1.0) != []


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
