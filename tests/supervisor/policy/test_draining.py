"""When a drain is over: states and a clock in, a result out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messages.lifecycle.tree import ChildState
from supervisor.operator.tree_commands import left_text
from supervisor.policy.draining import DrainEnd, DrainWatch


def test_a_dead_gateway_has_not_finished() -> None:
    watch = DrainWatch(30.0, now_s=100.0)
    assert watch.result([ChildState.DRAINED, ChildState.DEAD], 101.0) is None
    assert watch.result([ChildState.DRAINED, ChildState.STARTING], 102.0) is None
    assert watch.result([ChildState.DRAINED, ChildState.READY], 103.0) is None
    assert watch.result([ChildState.DRAINED, ChildState.DRAINED], 104.0) is DrainEnd.DRAINED


def test_the_deadline_stands_however_often_a_gateway_comes_back() -> None:
    watch = DrainWatch(30.0, now_s=100.0)
    assert (watch.left_s(100.0), watch.left_s(125.0), watch.left_s(140.0)) == (30.0, 5.0, 0.0)
    assert watch.result([ChildState.DRAINING], 129.9) is None
    assert watch.result([ChildState.DRAINING], 130.0) is DrainEnd.LATE
    assert watch.result([ChildState.DRAINED], 131.0) is DrainEnd.DRAINED


@given(st.lists(st.sampled_from(ChildState)), st.floats(0, 100), st.floats(0, 200))
def test_a_drain_is_over_only_when_all_said_so(states: list[ChildState], deadline_s: float, now_s: float) -> None:
    watch = DrainWatch(deadline_s, now_s=0.0)
    result = watch.result(states, now_s)
    assert (result is DrainEnd.DRAINED) == (set(states) <= {ChildState.DRAINED})
    assert (result is None) == (not set(states) <= {ChildState.DRAINED} and now_s < deadline_s)
    watch.cut()
    assert watch.result(states, now_s) is DrainEnd.CUT


def test_what_is_left_is_said_in_words() -> None:
    assert "1 answer is unfinished" in left_text(1, 30.0)
    assert "3 answers are unfinished" in left_text(3, 30.0)
    assert "no gateway reported" in left_text(0, 0.5)
