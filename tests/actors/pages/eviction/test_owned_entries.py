"""Owners of entries: who has more than its part, and which of its entries leaves next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.owned_entries import CacheShares, OwnedEntries
from tests.support.depth import examples

_ROOM = 20
_SHARES = {b"a": 0.25, b"b": 0.5, b"c": 1.0}
_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["add", "next", "use", "remove"]), st.integers(0, 30), st.sampled_from(list(_SHARES)), st.integers(1, 4)
    ),
    max_size=80,
)


def shares() -> CacheShares:
    found = CacheShares()
    for owner, share in _SHARES.items():
        found.note(owner, share)
    return found


@given(_EVENTS)
@examples(100)
def test_owners_are_above_their_parts_exactly_while_they_have_more(events: list[tuple[str, int, bytes, int]]) -> None:
    owned: OwnedEntries[int] = OwnedEntries(_ROOM, shares())
    kept = dict[int, tuple[bytes, int]]()  # in the order in which they leave
    for event, key, owner, size in events:
        if event in ("add", "next") and key not in kept:
            owned.add(key, owner, size, is_next=event == "next")
            kept = {key: (owner, size), **kept} if event == "next" else {**kept, key: (owner, size)}
        elif event == "use" and key in kept:
            owned.use(key)
            kept[key] = kept.pop(key)
        elif event == "remove":
            owned.remove(key)
            kept.pop(key, None)
        sizes = {owner: sum(size for one, size in kept.values() if one == owner) for owner in _SHARES}
        above = {owner for owner, share in _SHARES.items() if share < 1.0 and sizes[owner] > share * _ROOM}
        assert {owner: owned.size_of(owner) for owner in _SHARES} == sizes
        found = owned.next_above()
        assert (found is None) == (not above)
        if found is not None:
            owner = kept[found][0]
            assert owner in above
            assert found == next(key for key, (one, _) in kept.items() if one == owner)


def test_entries_that_must_stay_are_passed_over() -> None:
    owned: OwnedEntries[int] = OwnedEntries(10, shares())
    for key in range(4):
        owned.add(key, b"a")
    assert owned.next_above({0, 1}) == 2
    assert owned.next_above({0, 1, 2, 3}) is None
    assert owned.next_of(b"b") is None


def test_what_an_owner_takes_besides_its_entries_counts() -> None:
    owned: OwnedEntries[int] = OwnedEntries(8, shares())
    owned.add(1, b"a")
    assert not owned.is_full_for(b"a", 1)
    owned.count(b"a", 1)
    assert owned.is_full_for(b"a", 1)
    owned.count(b"a", 1)
    assert owned.next_above() == 1
    owned.count(b"a", -1)
    assert owned.next_above() is None
