"""The ledger under random use: counts agree with a naive model, content is found only where it is, nothing leaks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_hash import page_hash, page_hashes
from actors.pages.page_ledger import PageLedger
from tests.support.depth import examples


def check_every_page(ledger: PageLedger, held_by: list[list[int]]) -> None:
    """The whole ledger from the inside: each page in one state, with its holders and its content in the index."""
    holders = Counter(page for pages in held_by for page in pages)
    assert ledger._holders == [holders[page] for page in range(ledger.n_pages)]
    cached = [page for page in range(ledger.n_pages) if page in ledger._cached]
    assert len(cached) == len(ledger._cached)
    assert sorted([*ledger._free, *cached, *holders]) == list(range(ledger.n_pages))
    assert ledger._page_of == {content[0]: page for page, content in ledger._content.items()}
    assert set(cached) <= set(ledger._content)


class LedgerMachine(RuleBasedStateMachine):
    """Holders are lists of pages; every page's sealed content is remembered beside the ledger."""

    eviction = EvictionName.LRU

    def __init__(self) -> None:
        super().__init__()
        self.ledger = PageLedger(12, make_eviction(self.eviction, 12))
        self.holders: list[list[int]] = []
        self.content: dict[int, tuple[int, int, bytes]] = {}
        self.next_content = 1
        self.plans: list[set[int]] = []  # hashes that each plan in flight seals, the oldest plan first
        self.reported: set[int] = set()  # what a listener to the changes knows

    @rule(n=st.integers(1, 4))
    def allocate(self, n: int) -> None:
        pages = []
        for _ in range(n):
            available = self.ledger.n_available
            page = self.ledger.allocate()
            assert (page is None) == (available == 0)
            if page is not None:
                assert all(page not in held for held in self.holders)
                self.content.pop(page, None)
                pages.append(page)
        self.holders.append(pages)

    @precondition(lambda self: any(self.holders))
    @rule(data=st.data(), planned=st.booleans())
    def seal(self, data: st.DataObject, planned: bool) -> None:
        page = data.draw(st.sampled_from([p for held in self.holders for p in held]))
        if page not in self.content:
            content = (self.next_content, ROOT, b"%d" % self.next_content)
            self.next_content += 1
            self.ledger.seal(page, *content, is_planned=planned)
            self.content[page] = content
            if self.plans and not planned:
                self.plans[-1].add(content[0])
            self.plans.append({content[0]} if planned else set())
            if planned:
                assert self.ledger.find(*content) is None
                assert self.ledger.is_planned(content[0])
            self.ledger.commit_plan()

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        page, content = data.draw(st.sampled_from(sorted(self.content.items())))
        found = self.ledger.find(*content)
        assert found == page
        self.ledger.acquire([page])
        self.holders.append([page])
        if data.draw(st.booleans()):
            self.ledger.count_hits([page])

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.ledger.release(self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1))))

    @precondition(lambda self: self.plans)
    @rule()
    def apply_plan(self) -> None:
        self.ledger.apply_plan()
        self.plans.pop(0)

    @rule()
    def lose_plans(self) -> None:
        lost = set().union(*self.plans)
        self.ledger.drop_unapplied()
        self.content = {page: content for page, content in self.content.items() if content[0] not in lost}
        self.plans.clear()

    @rule()
    def report(self) -> None:
        sealed, dropped = self.ledger.take_changes()
        self.reported -= set(dropped)
        self.reported |= set(sealed)
        assert self.reported == set(self.ledger.inventory())

    @invariant()
    def agrees(self) -> None:
        assert sorted(self.ledger.inventory()) == sorted(content[0] for content in self.content.values())
        self.ledger.audit(self.holders)
        check_every_page(self.ledger, self.holders)
        statistics = self.ledger.statistics()
        assert statistics.free + statistics.cached + statistics.held == statistics.pages


@pytest.mark.parametrize("name", EvictionName)
def test_the_laws_of_the_ledger_hold_under_every_policy(name: EvictionName) -> None:
    class Machine(LedgerMachine):
        eviction = name

    run_state_machine_as_test(Machine, settings=examples(60, stateful_step_count=40))


def allocated(ledger: PageLedger) -> int:
    """A page, which must be there."""
    page = ledger.allocate()
    assert page is not None
    return page


def test_eviction_takes_the_deepest_page_of_the_oldest_holder_first() -> None:
    ledger = PageLedger(3, LruEviction())
    pages = [allocated(ledger) for _ in range(3)]
    for index, page in enumerate(pages):
        ledger.seal(page, index + 1, index, b"x", is_planned=False)
    ledger.release(pages)
    assert ledger.take_changes() == ([1, 2, 3], [])
    assert ledger.allocate() == pages[2]
    assert ledger.take_changes() == ([], [3])


def test_content_that_is_sealed_and_dropped_between_two_reports_is_not_reported() -> None:
    ledger = PageLedger(1, LruEviction())
    page = allocated(ledger)
    ledger.seal(page, 7, ROOT, b"x", is_planned=False)
    ledger.release([page])
    assert ledger.allocate() == page
    assert ledger.take_changes() == ([], [])


@pytest.mark.parametrize("is_planned", [True, False])
def test_content_of_a_lost_plan_is_forgotten_and_that_of_an_applied_one_kept(is_planned: bool) -> None:
    ledger = PageLedger(4, LruEviction())
    applied, lost, held, unsent = (allocated(ledger) for _ in range(4))
    ledger.seal(applied, 1, ROOT, b"a", is_planned=True)
    ledger.commit_plan()
    ledger.apply_plan()
    ledger.seal(lost, 2, ROOT, b"b", is_planned=True)
    ledger.commit_plan()
    ledger.seal(held, 3, ROOT, b"c", is_planned=False)  # complete once the plan in flight has run
    ledger.seal(unsent, 4, ROOT, b"d", is_planned=is_planned)
    ledger.release([applied, lost, unsent])
    ledger.drop_unapplied()
    assert ledger.find(1, ROOT, b"a") == applied
    assert [ledger.find(2, ROOT, b"b"), ledger.find(3, ROOT, b"c"), ledger.find(4, ROOT, b"d")] == [None] * 3
    assert ledger.inventory() == [1]
    check_every_page(ledger, [[held]])
    ledger.release([held])
    assert (ledger.statistics().free, ledger.statistics().cached) == (3, 1)


def test_same_hash_with_other_tokens_is_not_found() -> None:
    ledger = PageLedger(2, LruEviction())
    page = allocated(ledger)
    ledger.seal(page, 7, ROOT, b"tokens", is_planned=False)
    assert ledger.find(7, ROOT, b"tokens") == page
    assert ledger.find(7, ROOT, b"others") is None


@pytest.mark.parametrize("held_by", [[], [[1]], [[0], [0]], [[0, 1]]])
def test_an_audit_finds_leaks_and_foreign_holders(held_by: list[list[int]]) -> None:
    ledger = PageLedger(2, LruEviction())
    page = ledger.allocate()
    assert page == 0
    ledger.audit([[page]])
    with pytest.raises(AssertionError, match="page"):
        ledger.audit(held_by)


def test_a_held_page_is_never_handed_out() -> None:
    ledger = PageLedger(2, LruEviction())
    page = ledger.allocate()
    assert page is not None
    ledger._free.appendleft(page)
    with pytest.raises(AssertionError, match="was free, and held by 1"):
        ledger.allocate()


def test_an_audit_finds_a_page_that_got_lost() -> None:
    ledger = PageLedger(2, LruEviction())
    ledger._free.pop()
    with pytest.raises(AssertionError, match="expected 2"):
        ledger.audit([])


def test_page_hashes_are_chained_and_pinned() -> None:
    tokens = np.arange(40, dtype=np.int64)
    hashes = page_hashes(tokens)
    assert len(hashes) == 2
    first = page_hash(ROOT, np.arange(16, dtype="<i4").tobytes())
    assert hashes[0] == first == 10251598853290956435  # a change is a change of protocol
    assert hashes[1] == page_hash(int(first), np.arange(16, 32, dtype="<i4").tobytes())
    tokens[0] = 99
    assert page_hashes(tokens)[1] != hashes[1]
