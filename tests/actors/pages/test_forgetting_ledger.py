"""Many pages at once are the pages that one call after the other gives, and leave the same ledger behind."""

from __future__ import annotations

import random

import pytest

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.page_ledger import EvictedPage
from actors.pages.seal_table import SealTable, private_table
from messages.steps import PAGE_TOKENS
from tests.support.scheduler.ledger_machine import allocated, check_every_page

_N_PAGES = 24


def _content(number: int) -> tuple[int, int, bytes]:
    return 2 * number + 101, ROOT if number % 5 == 0 else 2 * number + 99, bytes([number]) * (4 * PAGE_TOKENS)


class _Twins:
    """Two ledgers that are used alike, but one allocates page by page, and the other one all pages of a sequence at once."""

    def __init__(self, name: EvictionName, tables: list[SealTable] | None = None) -> None:
        self.tables = tables or [private_table(1, _N_PAGES) for _ in range(2)]
        self.ledgers = [ForgettingLedger(_N_PAGES, make_eviction(name, _N_PAGES), table, lambda: 1.0) for table in self.tables]
        self.evicted: list[list[EvictedPage]] = [[], []]
        for ledger, evicted in zip(self.ledgers, self.evicted, strict=True):
            ledger.adopt()
            ledger.on_evicted = evicted.extend
        self.held: list[list[int]] = []

    def allocate(self, n_pages: int) -> None:
        one_by_one, at_once = self.ledgers
        pages = [allocated(one_by_one) for _ in range(n_pages)]
        assert at_once.allocate_all(n_pages) == pages
        self.held.append(pages)

    def seal(self, first: int, is_planned: bool) -> None:
        """The content of the pages that were allocated last; some have it already elsewhere, so they are duplicates."""
        for ledger in self.ledgers:
            before = None
            for number, page in enumerate(self.held[-1], first):
                ledger.seal(page, *_content(number), is_planned=is_planned, before=before)
                before = page
            if is_planned and self.held[-1]:
                ledger.tails.add(self.held[-1][-1], first, b"tail")
            ledger.commit_plan()

    def check(self) -> None:
        assert self.evicted[0] == self.evicted[1]
        changes = [ledger.take_changes() for ledger in self.ledgers]
        assert changes[0] == changes[1]
        assert self.tables[0].read().hashes.tolist() == self.tables[1].read().hashes.tolist()
        assert self.ledgers[0].statistics() == self.ledgers[1].statistics()
        for ledger in self.ledgers:
            ledger.audit(self.held)
            assert ledger._hash_of.keys() >= ledger._content.keys()
            if ledger._hash_of.keys() == ledger._content.keys():  # nothing is left of what was adopted
                check_every_page(ledger, self.held)


@pytest.mark.parametrize("name", EvictionName)
def test_pages_that_are_allocated_at_once(name: EvictionName) -> None:
    for seed in range(20):
        chance, twins = random.Random(seed), _Twins(name)
        for _ in range(60):
            draw = chance.random()
            if draw < 0.5:
                twins.allocate(chance.randrange(min(twins.ledgers[0].n_available, 8) + 1))
                twins.seal(5 * chance.randrange(20), is_planned=chance.random() < 0.7)
            elif draw < 0.8 and twins.held:
                pages = twins.held.pop(chance.randrange(len(twins.held)))
                for ledger in twins.ledgers:
                    ledger.release(pages)
            elif draw < 0.95:
                for ledger in twins.ledgers:
                    if ledger._unapplied:
                        ledger.apply_plan()
            else:
                for ledger in twins.ledgers:
                    ledger.drop_unapplied()
            twins.check()


def test_adopted_pages_that_are_evicted_at_once() -> None:
    twins = _Twins(EvictionName.LRU)
    twins.allocate(8)
    twins.seal(0, is_planned=True)
    for ledger in twins.ledgers:
        ledger.apply_plan()
    adopted = _Twins(EvictionName.LRU, twins.tables)
    assert [ledger.n_known for ledger in adopted.ledgers] == [8, 8]
    adopted.allocate(_N_PAGES - 4)
    adopted.check()
    assert [len(evicted) for evicted in adopted.evicted] == [4, 4]


def test_pages_that_were_loaded_are_sealed_at_once() -> None:
    ledger = ForgettingLedger(_N_PAGES, make_eviction(EvictionName.LRU, _N_PAGES))
    pages, contents = ledger.allocate_all(4), [_content(number) for number in range(5, 8)]
    ledger.seal_all(pages, contents, None)
    assert [ledger.find(*content) for content in contents] == pages[:3], "the last one has no content"
    ledger.release(pages)
    assert ledger.allocate_all(_N_PAGES)[-3:] == pages[:3][::-1], "the beginning is evicted last"
