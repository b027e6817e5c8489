"""Callers with parts of a tier: none takes the places of one that has no more than its part."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.pages.chain_root import root_of
from actors.pages.eviction.owned_entries import CacheShares
from actors.pages.eviction.place_shares import PlaceShares, ScopeBounds
from actors.pages.forgetting import RootScopes
from actors.pages.host_ledger import Content, HostLedger
from actors.pages.page_hash import page_hash
from actors.pages.seal_table import private_table
from messages.steps import PAGE_TOKENS
from tests.support.depth import examples

_N_PLACES = 20
_SHARES = {b"a": 0.2, b"b": 0.3, b"c": 0.5}
_LENGTH = 4  # pages of a prompt
_TRAFFIC = st.lists(
    st.tuples(st.sampled_from(["store", "store", "touch", "read", "load"]), st.sampled_from(list(_SHARES)), st.integers(0, 9)),
    max_size=60,
)


def chain(scope: bytes, number: int) -> list[Content]:
    """The contents of a prompt."""
    parent, found = root_of(scope, ""), list[Content]()
    for index in range(_LENGTH):
        tokens = bytes([number, index]) * (2 * PAGE_TOKENS)
        found.append((page_hash(parent, tokens), parent, tokens))
        parent = found[-1][0]
    return found


class _Rig:
    """A tier between others. `elsewhere`: the scopes of contents that these have."""

    def __init__(self) -> None:
        self.roots, self.shares, self.elsewhere = RootScopes(), CacheShares(), dict[int, bytes]()
        self.bounds = ScopeBounds(self.shares, self.roots.scope_of, lambda content_hash: self.elsewhere.get(content_hash, b""))
        self.ledger = HostLedger(private_table(1, _N_PLACES))
        for scope, share in _SHARES.items():
            self.shares.note(scope, share)

    def note_roots(self) -> None:
        for scope in _SHARES:
            self.roots.note(root_of(scope, ""), scope)
            self.ledger.root_noted(root_of(scope, ""))

    def store(self, scope: bytes, number: int) -> None:
        """The device evicts a prompt, the end of it first."""
        contents = chain(scope, number)
        self.elsewhere = {content[0]: scope for content in contents}
        for content in reversed(contents):
            self.ledger.store(content)
            del self.elsewhere[content[0]]

    def read(self, scope: bytes, number: int) -> None:
        """A prompt comes from below; it is on its way for a while."""
        contents = [content for content in chain(scope, number) if not self.ledger.has_hash(content[0])]
        self.elsewhere = {content[0]: scope for content in contents}  # the tier below knows whose they are
        places = [self.ledger.reserve(content) for content in contents]
        for content, place in reversed(list(zip(contents, places, strict=True))):
            if place is not None:
                self.ledger.fill(place, content)
        self.elsewhere = {}

    def pages(self) -> Counter[bytes]:
        """How many contents of each scope are there, which is looked up in another way than the ledger's."""
        owner_of = {content[0]: scope for scope in _SHARES for number in range(10) for content in chain(scope, number)}
        return Counter(owner_of[content_hash] for content_hash in self.ledger.inventory())


@given(_TRAFFIC, st.integers(0, 20))
@examples(60)
def test_under_random_traffic_nobody_within_its_part_loses_anything_to_others(
    traffic: list[tuple[str, bytes, int]], bound_at: int
) -> None:
    rig, loads = _Rig(), list[list[Content]]()
    rig.note_roots()
    for at, (event, scope, number) in enumerate(traffic):
        if at == bound_at:
            rig.ledger.bound(rig.bounds)
        before = rig.pages()
        match event:
            case "store":
                rig.store(scope, number)
            case "read":
                rig.read(scope, number)
            case "touch":
                rig.ledger.touch([content[0] for content in reversed(chain(scope, number))])
            case _ if loads:
                rig.ledger.unpin(loads.pop())
            case _:
                loads.append([content for content in chain(scope, number) if rig.ledger.find(content) is not None])
                rig.ledger.pin(loads[-1])
        if at < bound_at:
            continue
        after, n_pinned = rig.pages(), sum(map(len, loads))
        for other, share in _SHARES.items():
            part = share * _N_PLACES
            if other != scope and not n_pinned:
                assert after[other] >= min(before[other], part), f"{other!r} has lost pages to {scope!r}"
        if sum(after.values()) == _N_PLACES and after[scope] > before[scope] and not n_pinned:
            others_above = any(before[other] > share * _N_PLACES for other, share in _SHARES.items() if other != scope)
            had_room = sum(before.values()) < _N_PLACES
            assert after[scope] <= _SHARES[scope] * _N_PLACES or others_above or had_room


def test_a_flood_within_a_full_tier_takes_no_more_than_its_part() -> None:
    rig = _Rig()
    rig.note_roots()
    rig.ledger.bound(rig.bounds)
    for number in range(5):
        rig.store(b"a", number)  # the tier is empty: it may have all of it
    assert rig.pages() == {b"a": 20}
    rig.store(b"b", 0)
    rig.store(b"c", 0)
    assert rig.pages() == {b"a": 12, b"b": 4, b"c": 4}
    for number in range(10):
        rig.store(b"c", number)
    assert rig.pages() == {b"a": 4, b"b": 4, b"c": 12}, "what b has is less than its part, and it keeps it"
    for number in range(10):
        rig.store(b"a", number)
    assert rig.pages() == {b"a": 6, b"b": 4, b"c": 10}, "two places are of nobody's part"
    rig.store(b"b", 1)
    assert rig.pages() == {b"a": 4, b"b": 6, b"c": 10}
    assert rig.ledger.n_share_evicted == rig.ledger.n_evicted


def test_without_bounds_a_flood_takes_all() -> None:
    rig = _Rig()
    rig.note_roots()
    rig.store(b"b", 0)
    for number in range(10):
        rig.store(b"a", number)
    assert rig.pages() == {b"a": 20}


def test_what_an_earlier_scheduler_has_left_counts_as_soon_as_its_caller_asks_again() -> None:
    rig = _Rig()
    for number in range(5):
        rig.store(b"a", number)
    rig.ledger.bound(rig.bounds)  # nobody knows yet whose pages these are
    first = chain(b"a", 0)
    assert rig.ledger.scope_of(first[0][0]) == b""
    rig.note_roots()
    assert {rig.ledger.scope_of(content[0]) for content in first} == {b"a"}
    rig.store(b"b", 0)
    assert rig.pages() == {b"a": 16, b"b": 4}
    whole = [number for number in range(5) if all(rig.ledger.find(content) is not None for content in chain(b"a", number))]
    assert len(whole) == 4, "the pages of one prompt leave before those of another one, and none before one that continues it"


def test_a_caller_whose_pages_are_all_being_read_gets_no_more() -> None:
    rig = _Rig()
    rig.note_roots()
    rig.ledger.bound(rig.bounds)
    rig.store(b"a", 0)
    for number in range(4):
        rig.store(b"c", number)
    assert rig.pages() == {b"a": 4, b"c": 16}
    loaded = chain(b"a", 0)
    rig.ledger.pin(loaded)
    for content in [one for number in range(4) for one in chain(b"c", number)][:6]:
        rig.ledger.discard(content[0])
    rig.store(b"b", 0)
    rig.store(b"b", 1)
    assert rig.pages() == {b"a": 4, b"b": 6, b"c": 10}
    assert rig.ledger.store(chain(b"a", 1)[0]) is None
    assert rig.ledger.reserve(chain(b"a", 1)[0]) is None
    rig.ledger.unpin(loaded)
    assert rig.ledger.store(chain(b"a", 1)[0]) is not None


def test_contents_that_leave_before_they_are_known_leave_nothing_behind() -> None:
    roots, shares = RootScopes(), CacheShares()
    places = PlaceShares(_N_PLACES, ScopeBounds(shares, roots.scope_of, lambda _: b""))
    contents = chain(b"a", 1)
    for content_hash, parent, _ in contents:
        places.enter(content_hash, parent)
    for content_hash, _, _ in contents:
        places.leave(content_hash)
    assert not places._after
    assert not places._unknown
