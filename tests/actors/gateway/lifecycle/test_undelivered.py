"""Who is waited for: clients that go on taking, and for a while those that may still come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.lifecycle.undelivered import UndeliveredAnswers

PATIENCE_S = 5.0


def test_a_client_that_takes_is_waited_for_and_one_that_stops_is_given_up() -> None:
    answers = UndeliveredAnswers(PATIENCE_S)
    answers.add("r", 101, 0.0)
    for now_s, up_to in ((4.0, 10), (8.0, 50), (12.0, 100)):
        answers.confirm("r", up_to, now_s)
        assert answers.n_pending(now_s + PATIENCE_S) == 1
    answers.confirm("r", 100, 16.0)  # said again: nothing was taken
    assert answers.n_pending(17.1) == 0
    answers.confirm("r", 101, 17.1)
    assert answers.n_pending(17.1) == 0


def test_what_is_delivered_or_unknown_is_not_pending() -> None:
    answers = UndeliveredAnswers(PATIENCE_S)
    answers.confirm("nobody's", 3, 0.0)
    answers.add("a", 1, 0.0)
    answers.add("b", 1, 0.0)
    answers.confirm("a", 1, 1.0)
    answers.remove("b")
    answers.remove("b")
    assert answers.n_pending(1.0) == 0


def test_an_answer_that_ended_long_ago_is_not_waited_for() -> None:
    answers = UndeliveredAnswers(PATIENCE_S)
    answers.add("old", 4, -100.0)
    answers.add("new", 4, 0.0)
    assert answers.n_pending(1.0) == 1
    answers.drop_expired(1.0)
    answers.confirm("old", 2, 1.0)
    assert answers.n_pending(1.0) == 1


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), max_size=30))
def test_updates_wait_for_exactly_those_whose_rest_changed_within_the_patience(updates: list[dict[str, int]]) -> None:
    answers = UndeliveredAnswers(PATIENCE_S)
    changed_s: dict[str, float] = {}
    before: dict[str, int] = {}
    for now_s, left in enumerate(updates):
        answers.update(left, now_s)
        for key, n in left.items():
            if n != before.get(key, 0):
                changed_s[key] = now_s
        before = left
        waited = [key for key, n in left.items() if n and now_s - changed_s[key] <= PATIENCE_S]
        assert answers.n_pending(now_s) == len(waited)
