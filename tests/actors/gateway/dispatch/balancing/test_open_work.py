"""The load of a replica: reports, what was sent since, and what was sent of late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.dispatch.balancing.decayed_sum import DecayedSum
from actors.gateway.dispatch.balancing.open_work import OpenWork

A = "scheduler/0"


def test_a_report_has_what_was_confirmed_before_it_and_lacks_the_rest() -> None:
    work = OpenWork()
    work.opened(A, 1, 100, 0.0)
    work.opened(A, 2, 30, 0.0)
    work.confirmed(A, 1, 0.01)
    work.reported(A)
    assert work.load_tokens(A, 100, 0.02) == 130
    work.confirmed(A, 2, 0.03)
    assert work.load_tokens(A, 100, 0.04) == 130, "confirmed after the report"
    assert work.load_tokens(A, 100, 1.0) == 100, "a report would have come if it mattered"


def test_what_a_paused_scheduler_has_not_taken_counts_for_as_long_as_it_lasts() -> None:
    work = OpenWork()
    work.opened(A, 1, 100, 0.0)
    assert work.load_tokens(A, 0, 60.0) == 100
    work.closed(A, 1)
    assert work.load_tokens(A, 0, 60.0) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 500)), max_size=40))
def test_without_reports_the_load_is_the_sum_of_the_open_attempts(steps: list[tuple[bool, int, int]]) -> None:
    work, twin = OpenWork(), dict[int, int]()
    for opens, attempt, n_tokens in steps:
        if opens and attempt not in twin:
            work.opened(A, attempt, n_tokens, 0.0)
            twin[attempt] = n_tokens
        elif not opens:
            work.closed(A, attempt)
            twin.pop(attempt, None)
        assert work.load_tokens(A, None, 0.0) == sum(twin.values())
        assert work.load_tokens(A, 7, 0.0) == 7 + sum(twin.values()), "none of them is confirmed"


@given(st.lists(st.tuples(st.sampled_from(("confirm", "report", "wait")), st.integers(1, 500)), max_size=40))
def test_what_was_confirmed_of_late_counts_until_a_report_or_its_time_is_over(steps: list[tuple[str, int]]) -> None:
    work, of_late, now_s = OpenWork(), list[tuple[float, int]](), 0.0
    for attempt, (what, amount) in enumerate(steps, start=1):
        if what == "confirm":
            work.opened(A, attempt, amount, now_s)
            work.confirmed(A, attempt, now_s)
            of_late.append((now_s, amount))
        elif what == "report":
            work.reported(A)
            of_late.clear()
        else:
            now_s += amount * 1e-3
        assert work.load_tokens(A, 7, now_s) == 7 + sum(n for at_s, n in of_late if at_s >= now_s - 0.2)


def test_answers_teach_how_long_the_next_one_is() -> None:
    work = OpenWork()
    for _ in range(200):
        work.answered(500)
    assert 480 <= work.expected_output(10_000) <= 500
    assert (work.expected_output(16), work.expected_output(-1)) == (16, 0)


def test_a_sum_halves_with_each_half_life_and_a_clock_that_steps_back_changes_nothing() -> None:
    total = DecayedSum(10.0)
    total.add(8.0, 100.0)
    assert (total.value(100.0), total.value(110.0), total.value(130.0), total.value(90.0)) == (8.0, 4.0, 1.0, 8.0)
    total.add(1.0, 90.0)
    assert total.value(100.0) == 9.0
