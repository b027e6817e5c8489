"""Random use of a page ledger: counts agree with a naive model, content is found only where it is, nothing leaks."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.page_ledger import PageLedger
from actors.pages.sizing.sized_ledger import SizedLedger


def check_every_page(ledger: PageLedger, held_by: list[list[int]]) -> None:
    """The whole ledger from the inside: each page in one state, with its holders and its content in the index."""
    holders = Counter(page for pages in held_by for page in pages)
    assert ledger._holders == [holders[page] for page in range(ledger.n_pages)]
    cached = [page for page in range(ledger.n_pages) if page in ledger._cached]
    assert len(cached) == len(ledger._cached)
    returned = ledger.returned if isinstance(ledger, SizedLedger) else []
    assert sorted([*ledger._free, *returned, *cached, *holders]) == list(range(ledger.n_pages))
    assert ledger._page_of == {content[0]: page for page, content in ledger._content.items()}
    assert set(cached) <= set(ledger._content)


class LedgerMachine(RuleBasedStateMachine):
    """Holders are lists of pages; every page's sealed content is remembered beside the ledger."""

    eviction = EvictionName.LRU

    def __init__(self) -> None:
        super().__init__()
        self.ledger = self.new_ledger()
        self.holders: list[list[int]] = []
        self.content: dict[int, tuple[int, int, bytes]] = {}
        self.next_content = 1
        self.plans: list[set[int]] = []  # hashes that each plan in flight seals, the oldest plan first
        self.reported: set[int] = set()  # what a listener to the changes knows

    def new_ledger(self) -> PageLedger:
        """The ledger of this run, of 12 pages."""
        return PageLedger(12, make_eviction(self.eviction, 12))

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
        assert statistics.free + statistics.returned + statistics.cached + statistics.held == statistics.pages


def allocated(ledger: PageLedger) -> int:
    """A page, which must be there."""
    page = ledger.allocate()
    assert page is not None
    return page
