"""No caller holds more connections than its bound, whatever comes and goes, and a place is given back exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.admission.caller import caller_of_address, caller_of_tenant
from actors.gateway.connections.caller_connections import CallerConnections, ConnectionPlace
from actors.gateway.requests.refusals import Refusal
from actors.gateway.settings import GatewaySettings

_ADDRESSES = ("10.0.0.1", "10.0.0.2")
_TENANTS = tuple(map(caller_of_tenant, ("a", "b")))
_SPARE = 16
_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(_ADDRESSES)),
        st.tuples(st.just("keep"), st.none()),
        st.tuples(st.just("ask"), st.tuples(st.integers(0, 60), st.sampled_from(_TENANTS))),
        st.tuples(st.just("leave"), st.integers(0, 60)),
    ),
    max_size=120,
)


def counts(most: int = 0, most_in_all: int = 100) -> CallerConnections:
    return CallerConnections(lambda: most_in_all, most, lambda why: None)


def ask(place: ConnectionPlace, caller: bytes) -> bool:
    """True if the caller may ask on this connection."""
    try:
        place.belongs_to(caller)
    except Refusal:
        return False
    return True


@given(_MOVES, st.sampled_from((0, 1, 5)))
def test_what_each_caller_holds_is_bounded_and_all_is_given_back(moves: list, most: int) -> None:
    all_of, held = counts(most, 20), []
    for what, which in moves:
        if what == "enter" and (place := all_of.enter(which)) is not None:
            held.append(place)
        elif what == "keep":
            held.append(all_of.keep())
        elif held and what == "ask":
            number, tenant = which
            place = held[number % len(held)]
            if ask(place, tenant) and place.refusal is None and most:
                assert all_of._shares.held_by(tenant) <= most
        elif held and what == "leave":
            held.pop(which % len(held)).leave()
        for caller in map(caller_of_address, _ADDRESSES):
            assert all_of._shares.held_by(caller) <= (most or 20) + _SPARE
    for place in held * 2:
        place.leave()
    assert (all_of._shares.n_held, all_of._shares.n_callers, all_of._n_refused) == (0, 0, {})


def test_a_refused_caller_is_told_on_a_few_connections_and_comes_in_when_one_ends() -> None:
    all_of = counts(most=2)
    inside = [all_of.enter("10.0.0.1") for _ in range(2)]
    told = [all_of.enter("10.0.0.1") for _ in range(_SPARE)]
    assert all(one is not None and one.refusal is not None for one in told)
    assert all_of.enter("10.0.0.1") is None
    other = all_of.enter("10.0.0.2")
    assert other is not None
    assert other.refusal is None
    for one in (*told, inside[0]):
        assert one is not None
        one.leave()
    again = all_of.enter("10.0.0.1")
    assert again is not None
    assert again.refusal is None


def test_a_tenant_that_has_all_it_may_does_not_take_the_connection_of_its_address() -> None:
    """Connections behind one address are of many tenants: each counts for its own, and the address has room again."""
    all_of = counts(most=1)
    for tenant in _TENANTS:
        place = all_of.enter("10.0.0.1")
        assert place is not None
        assert place.refusal is None
        assert ask(place, tenant)
    third = all_of.enter("10.0.0.1")
    assert third is not None
    assert third.refusal is None
    with pytest.raises(Refusal) as caught:
        third.belongs_to(_TENANTS[0])
    assert "expected at most 1 open ones of one caller (gateway.max_caller_connections), got 2" in caught.value.detail
    assert (caught.value.status, caught.value.retry_after_s, caught.value.fine_code) == (429, 1.0, "caller_share")


def test_where_callers_are_told_apart_one_alone_gets_four_fifths_and_another_still_gets_in() -> None:
    all_of = counts(most_in_all=100)
    places = [all_of.enter("10.0.0.1") for _ in range(100)]
    assert sum(place is not None and place.refusal is None for place in places) == 80
    refused = next(place.refusal for place in places if place is not None and place.refusal is not None)
    assert (
        "expected at most 80 open ones of one caller now, its share of 100 (gateway.max_connections), got 81" in refused.detail
    )
    other = all_of.enter("10.0.0.2")
    assert other is not None
    assert other.refusal is None


def test_the_last_free_connection_of_all_can_still_show_whose_it_is() -> None:
    all_of = counts(most_in_all=1)
    place = all_of.enter("10.0.0.1")
    assert place is not None
    assert ask(place, _TENANTS[0])


def test_connections_that_were_taken_over_are_nobodys_until_they_ask() -> None:
    all_of = counts(most=1)
    taken = [all_of.keep() for _ in range(3)]
    assert all(place.refusal is None for place in taken)
    assert [ask(place, _TENANTS[0]) for place in taken] == [True, False, False]
    assert all_of.enter("10.0.0.1").refusal is None  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("settings", "are_counted"),
    [({}, False), ({"max_caller_connections": 3}, True), ({"caller_header": "X-Key"}, True), ({"keys_file": "k"}, True)],
)
def test_nothing_is_counted_where_no_caller_has_a_bound(settings: dict, are_counted: bool) -> None:
    counted = CallerConnections.of(GatewaySettings(**settings), lambda: 100, lambda why: None)
    assert (counted is not None) == are_counted
