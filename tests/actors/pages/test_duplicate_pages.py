"""A page whose content is known can be found: its prefix is known too, whoever computes the same content at the same time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_ledger import PageLedger
from actors.pages.seal_table import format_table, table_bytes
from tests.support.depth import at_depth

_N_PAGES, _N_STEPS, _N_HISTORIES = 10, 60, 40
Content = tuple[int, int, bytes]


class Seals:
    """In the place of a `SealTable`: the records by page."""

    def __init__(self) -> None:
        self.records: dict[int, Content] = {}

    def record(self, page: int, content_hash: int, parent: int, tokens: bytes) -> None:
        self.records[page] = (content_hash, parent, tokens)

    def erase(self, page: int) -> None:
        self.records.pop(page, None)


def content_of(text: str) -> Content:
    """The content of the last page of a text in which each character is a page."""
    digits = text.replace("a", "21").replace("b", "22")  # two for each, because smaller numbers than 16 are no hashes
    return int(digits), int(digits[:-2] or ROOT), text[-1].encode()


@dataclass
class Holder:
    """A sequence: its pages, and the text that they have. It computes one page in each plan."""

    text: str = ""
    pages: list[int] = field(default_factory=list)


class House:
    """A ledger, its holders, and what the memory of each page has once a plan has run."""

    def __init__(self, name: EvictionName, chance: random.Random) -> None:
        self.seals = Seals()
        self.ledger = PageLedger(_N_PAGES, make_eviction(name, _N_PAGES), self.seals)  # pyright: ignore[reportArgumentType]
        self.chance = chance
        self.holders: list[Holder] = []
        self.in_flight: list[dict[int, Content]] = []  # what each plan writes
        self.memory: dict[int, Content] = {}

    def begin(self) -> None:
        """A sequence enters with the pages that are known of its text."""
        text, holder = "".join(self.chance.choice("ab") for _ in range(3)), Holder()
        while len(holder.text) < len(text):
            page = self.ledger.find(*content_of(text[: len(holder.text) + 1]))
            if page is None:
                break
            holder.text, holder.pages = text[: len(holder.text) + 1], [*holder.pages, page]
        self.ledger.acquire(holder.pages)
        self.ledger.count_hits(holder.pages)
        self.holders.append(holder)

    def plan(self) -> None:
        """Every sequence gets a page that this plan computes, or leaves when there is none."""
        written: dict[int, Content] = {}
        for holder in list(self.holders):
            page = self.ledger.allocate()
            if page is None:
                self.end(holder)
                continue
            holder.text, holder.pages = holder.text + self.chance.choice("ab"), [*holder.pages, page]
            content = written[page] = content_of(holder.text)
            self.ledger.seal(page, *content, is_planned=True)
        self.ledger.commit_plan()
        self.in_flight.append(written)

    def end(self, holder: Holder) -> None:
        self.holders.remove(holder)
        self.ledger.release(holder.pages)

    def apply(self) -> None:
        if self.in_flight:
            self.memory.update(self.in_flight.pop(0))
            self.ledger.apply_plan()

    def lose(self) -> None:
        """The plans in flight are lost, and with them the sequences that they compute."""
        lost = {page for written in self.in_flight for page in written}
        self.in_flight.clear()
        self.ledger.drop_unapplied()
        for holder in [holder for holder in self.holders if lost & set(holder.pages)]:
            self.end(holder)
        for page in lost:
            self.memory.pop(page, None)

    def check(self) -> None:
        ledger, coming = self.ledger, dict(self.memory)
        for written in self.in_flight:
            coming.update(written)
        for page, (content_hash, parent, tokens) in ledger._content.items():
            assert parent == ROOT or parent in ledger._page_of, "its prefix is gone: nobody can find it"
            assert coming[page] == (content_hash, parent, tokens)
        for page, record in self.seals.records.items():
            assert ledger._content[page] == record == self.memory[page]
        held = {page for holder in self.holders for page in holder.pages}
        assert set(ledger._duplicates._hash_of) <= held - ledger._content.keys()
        ledger.audit([holder.pages for holder in self.holders])


@pytest.mark.parametrize("name", EvictionName)
def test_no_history_leaves_a_known_page_without_its_prefix(name: EvictionName) -> None:
    n_duplicates = 0
    for seed in range(at_depth(_N_HISTORIES)):
        chance = random.Random(seed)
        house = House(name, chance)
        for _ in range(_N_STEPS):
            step = chance.choice((house.begin, house.plan, house.plan, house.apply, house.apply, None, house.lose))
            if step is not None and (step != house.lose or chance.random() < 0.2):
                step()
            elif house.holders:
                house.end(chance.choice(house.holders))
            house.check()
            n_duplicates += len(house.ledger._duplicates.by_hash)
    assert n_duplicates > _N_HISTORIES


def test_a_twin_takes_the_place_of_its_page_and_keeps_what_comes_after_it() -> None:
    seals = Seals()
    ledger = PageLedger(4, LruEviction(4), seals)  # pyright: ignore[reportArgumentType]
    first, second, after = content_of("a"), content_of("a"), content_of("ab")
    pages = [ledger.allocate() for _ in range(3)]
    assert pages == [0, 1, 2]
    ledger.seal(0, *first, is_planned=True)
    ledger.seal(1, *second, is_planned=True)
    ledger.seal(2, *after, is_planned=True)
    ledger.commit_plan()
    ledger.apply_plan()
    ledger.release([0])
    assert [ledger.allocate() for _ in range(2)] == [3, 0], "the known page is evicted"
    assert (ledger.find(*first), ledger.find(*after)) == (1, 2)
    assert seals.records == {1: first, 2: after}
    assert ledger.take_changes() == ([first[0], after[0]], [])
    table = format_table(bytearray(table_bytes(4)), 7, 4)
    for page, record in seals.records.items():
        table.record(page, *record)
    assert PageLedger(4, LruEviction(4), table).adopt() == 2
