"""Who is waited for: clients that go on taking, and for a while those that may still come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.dispatch.handover import Handover

PATIENCE_S = 5.0


def test_a_client_that_takes_is_waited_for_and_one_that_stops_is_given_up() -> None:
    handover = Handover(PATIENCE_S)
    handover.owe("r", 101, 0.0)
    for now_s, up_to in ((4.0, 10), (8.0, 50), (12.0, 100)):
        handover.received("r", up_to, now_s)
        assert handover.n_waited_for(now_s + PATIENCE_S) == 1
    handover.received("r", 100, 16.0)  # said again: nothing was taken
    assert handover.n_waited_for(17.1) == 0
    handover.received("r", 101, 17.1)
    assert handover.n_waited_for(17.1) == 0


def test_what_is_paid_or_unknown_is_not_owed() -> None:
    handover = Handover(PATIENCE_S)
    handover.received("nobody's", 3, 0.0)
    handover.owe("a", 1, 0.0)
    handover.owe("b", 1, 0.0)
    handover.received("a", 1, 1.0)
    handover.paid("b")
    handover.paid("b")
    assert handover.n_waited_for(1.0) == 0


def test_an_answer_that_ended_long_ago_is_not_waited_for() -> None:
    handover = Handover(PATIENCE_S)
    handover.owe("old", 4, -100.0)
    handover.owe("new", 4, 0.0)
    assert handover.n_waited_for(1.0) == 1
    handover.forget_given_up(1.0)
    handover.received("old", 2, 1.0)
    assert handover.n_waited_for(1.0) == 1


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), max_size=30))
def test_looks_wait_for_exactly_those_whose_rest_changed_within_the_patience(looks: list[dict[str, int]]) -> None:
    handover = Handover(PATIENCE_S)
    changed_s: dict[str, float] = {}
    before: dict[str, int] = {}
    for now_s, left in enumerate(looks):
        handover.look(left, now_s)
        for key, n in left.items():
            if n != before.get(key, 0):
                changed_s[key] = now_s
        before = left
        waited = [key for key, n in left.items() if n and now_s - changed_s[key] <= PATIENCE_S]
        assert handover.n_waited_for(now_s) == len(waited)
