"""The ledger under random use: counts agree with a naive model, content is found only where it is, nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.pages.page_hash import ROOT, page_hash, page_hashes
from actors.pages.page_ledger import PageLedger


class LedgerMachine(RuleBasedStateMachine):
    """Holders are lists of pages; every page's sealed content is remembered beside the ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = PageLedger(12)
        self.holders: list[list[int]] = []
        self.content: dict[int, tuple[int, int, bytes]] = {}
        self.next_content = 1

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
    @rule(data=st.data(), fresh=st.booleans())
    def seal(self, data: st.DataObject, fresh: bool) -> None:
        page = data.draw(st.sampled_from([p for held in self.holders for p in held]))
        if page not in self.content:
            content = (self.next_content, ROOT, b"%d" % self.next_content)
            self.next_content += 1
            self.ledger.seal(page, *content, is_fresh=fresh)
            self.content[page] = content
            if fresh:
                assert self.ledger.find(*content) is None
                assert self.ledger.is_fresh(content[0])
            self.ledger.commit_plan()

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        page, content = data.draw(st.sampled_from(sorted(self.content.items())))
        found = self.ledger.find(*content)
        assert found == page
        self.ledger.acquire(page)
        self.holders.append([page])

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.ledger.release(self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1))))

    @invariant()
    def agrees(self) -> None:
        self.ledger.check_integrity(self.holders)
        statistics = self.ledger.statistics()
        assert statistics.free + statistics.cached + statistics.held == statistics.pages


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_eviction_takes_the_deepest_page_of_the_oldest_holder_first() -> None:
    ledger = PageLedger(3)
    pages = [ledger.allocate() for _ in range(3)]
    for index, page in enumerate(pages):
        ledger.seal(page, index + 1, index, b"x", is_fresh=False)
    ledger.release(pages)
    assert ledger.allocate() == pages[2]
    assert ledger.take_news() == ([1, 2, 3], [3])


def test_same_hash_with_other_tokens_is_not_found() -> None:
    ledger = PageLedger(2)
    page = ledger.allocate()
    ledger.seal(page, 7, ROOT, b"tokens", is_fresh=False)
    assert ledger.find(7, ROOT, b"tokens") == page
    assert ledger.find(7, ROOT, b"others") is None


def test_integrity_check_finds_a_leak() -> None:
    ledger = PageLedger(2)
    ledger.allocate()
    with pytest.raises(AssertionError, match="page 0"):
        ledger.check_integrity([])


def test_page_hashes_are_chained_and_pinned() -> None:
    tokens = np.arange(40, dtype=np.int64)
    hashes = page_hashes(tokens)
    assert len(hashes) == 2
    first = page_hash(ROOT, np.arange(16, dtype="<i4").tobytes())
    assert hashes[0] == first == 10251598853290956434  # a change is a change of protocol
    assert hashes[1] == page_hash(int(first), np.arange(16, 32, dtype="<i4").tobytes())
    tokens[0] = 99
    assert page_hashes(tokens)[1] != hashes[1]
