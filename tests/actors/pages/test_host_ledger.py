"""The ledger of the host tier under random use: no two contents share a place, and no pinned place is overwritten."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from actors.pages.host_ledger import Content, HostLedger
from actors.pages.seal_table import SealTable, format_table, private_table, table_bytes
from messages.steps import PAGE_TOKENS
from tests.support.depth import at_depth, examples

_N_PLACES = 5


def _content(number: int) -> Content:
    return 2 * number + 101, 0, bytes([number]) * (4 * PAGE_TOKENS)


class HostLedgerMachine(RuleBasedStateMachine):
    """What has been copied to each place is remembered beside the ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.table = private_table(1, _N_PLACES)
        self.ledger = HostLedger(self.table)
        self.at: dict[int, Content] = {}  # by place
        self.told = set[int]()  # hashes, as the cache directory knows them
        self.loads: list[list[Content]] = []
        self.read: list[int] = []  # places that loads read
        self.reserved: list[int] = []

    @rule(number=st.integers(0, 9))
    def store(self, number: int) -> None:
        content, known = _content(number), self.ledger.find(_content(number))
        place = self.ledger.store(content)
        assert place is None or known is None
        if place is not None:
            assert place not in self.read, "a place that is read was overwritten"
            assert place not in self.reserved, "a reserved place was overwritten"
            self.at[place] = content
            assert self.ledger.find(content) == place

    @rule(first=st.integers(0, 9), n=st.integers(1, 4))
    def load(self, first: int, n: int) -> None:
        found = [content for content in map(_content, range(first, first + n)) if self.ledger.find(content) is not None]
        places = self.ledger.pin(found)
        assert [self.at[place] for place in places] == found
        self.loads.append(found)
        self.read += places

    @rule(first=st.integers(0, 9), n=st.integers(1, 4), other=st.integers(0, 9))
    def look_up(self, first: int, n: int, other: int) -> None:
        wanted = [_content(number) for number in range(first, first + n)]
        found, places = self.ledger.first_of(iter(wanted), lambda content_hash: content_hash == _content(other)[0])
        assert places == [self.ledger.find(content) for content in found]
        left = wanted[len(found) :]
        assert found == wanted[: len(found)]
        assert not left or left[0] == _content(other) or self.ledger.find(left[0]) is None

    @precondition(lambda self: bool(self.loads))
    @rule(data=st.data())
    def end_load(self, data: st.DataObject) -> None:
        contents = self.loads.pop(data.draw(st.integers(0, len(self.loads) - 1)))
        assert [self.at[place] for content in contents if (place := self.ledger.find(content)) is not None] == contents
        for content in contents:
            place = self.ledger.find(content)
            assert place is not None
            self.read.remove(place)
        self.ledger.unpin(contents)

    @rule(number=st.integers(0, 9))
    def discard(self, number: int) -> None:
        if all(_content(number) not in load for load in self.loads):
            self.ledger.discard(_content(number)[0])
            assert self.ledger.find(_content(number)) is None

    @rule()
    def next_scheduler(self) -> None:
        """It knows the same contents at the same places, and reads none."""
        before = {number: self.ledger.find(_content(number)) for number in range(10)}
        self.ledger, self.loads, self.read, self.reserved = HostLedger(self.table), [], [], []
        self.told = set(self.ledger.inventory())
        assert {number: self.ledger.find(_content(number)) for number in range(10)} == before

    @rule()
    def reserve(self) -> None:
        place = self.ledger.reserve(_content(20))
        if place is None:
            assert len(set(self.read)) + len(self.reserved) == _N_PLACES
            return
        assert place not in self.read, "a place that is read was reserved"
        self.at.pop(place, None)
        self.reserved.append(place)

    @precondition(lambda self: self.reserved)
    @rule(number=st.integers(0, 9), is_filled=st.booleans())
    def end_reservation(self, number: int, is_filled: bool) -> None:
        place, known = self.reserved.pop(0), self.ledger.find(_content(number))
        if not is_filled:
            self.ledger.give_back(place)
            return
        self.ledger.fill(place, _content(number))
        if known is None:
            self.at[place] = _content(number)
        assert self.ledger.find(_content(number)) == (place if known is None else known)

    @precondition(lambda self: not self.loads and not self.reserved)
    @rule()
    def clear(self) -> None:
        self.ledger.clear()
        assert not len(self.ledger)

    @rule()
    def tell(self) -> None:
        added, removed = self.ledger.take_changes()
        self.told.difference_update(removed)
        self.told.update(added)
        assert self.told == set(self.ledger.inventory())
        assert len(self.ledger.inventory()) == len(self.ledger)

    @invariant()
    def each_content_is_at_its_place(self) -> None:
        found = {number: self.ledger.find(_content(number)) for number in range(10)}
        places = [place for place in found.values() if place is not None]
        assert len(set(places)) == len(places) == len(self.ledger) <= _N_PLACES
        assert all(self.at[place] == _content(number) for number, place in found.items() if place is not None)


def test_ledger_under_random_use() -> None:
    run_state_machine_as_test(HostLedgerMachine, settings=examples(100))


def test_the_least_recently_used_content_is_overwritten_first() -> None:
    ledger = HostLedger(private_table(1, 3))
    places = [ledger.store(_content(number)) for number in range(3)]
    assert ledger.store(_content(0)) is None, "it has a place already"
    assert ledger.store(_content(3)) == places[1]
    ledger.pin([_content(2)])
    ledger.unpin([_content(2)])
    assert ledger.store(_content(4)) == places[0]


def test_a_content_of_the_same_hash_is_not_found() -> None:
    ledger = HostLedger(private_table(1, 2))
    (content_hash, parent, one), other = _content(1), bytes(4 * PAGE_TOKENS)
    ledger.store((content_hash, parent, one))
    ledger.store(_content(2))
    assert ledger.first_of([_content(2), (content_hash, parent, other)], {}.__contains__)[0] == [_content(2)]
    assert ledger.find((content_hash, parent, other)) is None
    place = ledger.store((content_hash, parent, other))
    assert place is not None
    assert ledger.find((content_hash, parent, one)) is None
    assert ledger.find((content_hash, parent, other)) == place


def test_the_next_scheduler_overwrites_the_ends_of_prefixes_first() -> None:
    table = private_table(1, 3)
    first = HostLedger(table)
    chain: list[Content] = []
    for number in range(3):
        content_hash, _, tokens = _content(number)
        chain.append((content_hash, chain[-1][0] if chain else 0, tokens))
    places = [first.store(content) for content in (chain[1], chain[0], chain[2])]
    second = HostLedger(table)
    assert second.store(_content(7)) == places[2]
    assert second.store(_content(8)) == places[0]


@pytest.mark.parametrize("seed", range(at_depth(20)))
def test_damaged_records_never_name_another_content_and_no_place_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    buffer = bytearray(table_bytes(_N_PLACES))
    first = HostLedger(format_table(buffer, 1, _N_PLACES))
    for number in range(rng.randrange(9)):
        first.store(_content(number))
    for _ in range(3):
        at, n = rng.randrange(64, len(buffer)), rng.choice([1, 8, 80])
        damage = bytes(buffer[64 : 64 + n]) if rng.random() < 0.5 else rng.randbytes(n)  # another record, or anything
        buffer[at : at + n] = damage[: len(buffer) - at]
    table = SealTable(buffer)
    ledger = HostLedger(table)
    for number in range(9):
        place = ledger.find(_content(number))
        assert place is None or table.content(place) == _content(number)
    stored = [ledger.store(_content(number)) for number in range(20, 20 + _N_PLACES)]
    assert sorted(place for place in stored if place is not None) == list(range(_N_PLACES))


def test_what_goes_next_has_the_time_since_it_was_used() -> None:
    now_s = 100.0
    ledger = HostLedger(private_table(1, 2), lambda: now_s)
    assert (ledger.unused_s(), ledger.n_evicted) == (0.0, 0)
    ledger.store(_content(1))
    now_s = 110.0
    ledger.store(_content(2))
    now_s = 115.0
    assert ledger.unused_s() == 15.0
    ledger.store(_content(1))
    assert ledger.unused_s() == 5.0
    ledger.store(_content(3))
    assert (ledger.unused_s(), ledger.n_evicted) == (0.0, 1)
