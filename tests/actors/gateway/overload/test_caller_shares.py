"""Callers share a bounded amount: the sum never exceeds the bound, and there is room for one more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.overload.caller_shares import CallerShares

_WEIGHTS = {b"a": 1.0, b"b": 1.0, b"c": 3.0, b"d": 0.1}
_MOVES = st.lists(st.tuples(st.sampled_from(sorted(_WEIGHTS)), st.integers(-400, 400)), max_size=80)


def fill(shares: CallerShares, caller: bytes, weight: float = 1.0) -> int:
    """A flood of one caller, each request of which is 1; returns what it holds."""
    while shares.room(caller, weight) >= 1:
        shares.add(caller, weight, 1)
    return shares.held_by(caller)


@given(_MOVES, st.booleans())
def test_the_sum_stays_within_the_limit_and_is_that_of_the_callers(moves: list[tuple[bytes, int]], are_apart: bool) -> None:
    shares = CallerShares(1000, are_told_apart=are_apart)
    for caller, n in moves:
        if n > 0 and n <= shares.room(caller, _WEIGHTS[caller]):
            shares.add(caller, _WEIGHTS[caller], n)
        elif n < 0:
            shares.release(caller, min(-n, shares.held_by(caller)))
        assert 0 <= shares.n_held <= 1000
        assert shares.n_held == sum(map(shares.held_by, _WEIGHTS))
        assert shares.n_callers == sum(shares.held_by(one) > 0 for one in _WEIGHTS)
        assert shares.room(b"new", 1.0) == shares.n_free


def test_a_flood_leaves_room_and_ends_at_a_part_by_weight() -> None:
    shares = CallerShares(9000, are_told_apart=True)
    assert fill(shares, b"a") == 7200, "four fifths"
    assert fill(shares, b"b") == 1440, "four fifths of the rest"
    while shares.held_by(b"a") > shares.held_by(b"b"):  # what they hold goes, and both come again
        shares.release(b"a", 10)
        fill(shares, b"b")
    assert shares.held_by(b"b") == pytest.approx(4000, abs=50)
    assert shares.n_free == pytest.approx(1000, abs=100)


def test_a_greater_weight_has_a_greater_part() -> None:
    shares, callers = CallerShares(1700, are_told_apart=True), ((b"c", 3.0), (b"a", 1.0))
    for _ in range(500):
        for caller, _ in callers:  # each gives back a little
            shares.release(caller, shares.held_by(caller) // 20)
        while any(shares.room(*one) for one in callers):  # and they take in turns what they may
            for caller, weight in callers:
                shares.add(caller, weight, min(shares.room(caller, weight), 1))
    assert 2.0 < shares.held_by(b"c") / shares.held_by(b"a") <= 3.0, "whoever takes last finds less"


def test_callers_that_are_not_told_apart_share_one_room() -> None:
    shares = CallerShares(100, are_told_apart=False)
    assert fill(shares, b"a") == 100
    assert shares.room(b"b", 1.0) == 0


def test_who_holds_its_fair_share_by_weight() -> None:
    shares = CallerShares(1000, are_told_apart=True)
    shares.add(b"a", 1.0, 300)
    assert shares.fair_share(b"a") == shares.n_held, "it holds all of it"
    shares.add(b"c", 3.0, 300)
    assert (shares.fair_share(b"a"), shares.fair_share(b"c"), shares.fair_share(b"x")) == (150, None, None)
