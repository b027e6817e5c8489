"""The ledger under random use: counts agree with a naive model, content is found only where it is, nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis.stateful import run_state_machine_as_test

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_hash import page_hash, page_hashes
from actors.pages.page_ledger import PageLedger
from tests.support.depth import examples
from tests.support.scheduler.ledger_machine import LedgerMachine, allocated, check_every_page


@pytest.mark.parametrize("name", EvictionName)
def test_the_laws_of_the_ledger_hold_under_every_policy(name: EvictionName) -> None:
    class Machine(LedgerMachine):
        eviction = name

    run_state_machine_as_test(Machine, settings=examples(60, stateful_step_count=40))


def test_eviction_takes_the_deepest_page_of_the_oldest_holder_first() -> None:
    ledger = PageLedger(3, LruEviction(3))
    pages = [allocated(ledger) for _ in range(3)]
    for index, page in enumerate(pages):
        ledger.seal(page, index + 1, index, b"x", is_planned=False)
    ledger.release(pages)
    assert ledger.take_changes() == ([1, 2, 3], [])
    assert ledger.allocate() == pages[2]
    assert ledger.take_changes() == ([], [3])


def test_content_that_is_sealed_and_dropped_between_two_reports_is_not_reported() -> None:
    ledger = PageLedger(1, LruEviction(1))
    page = allocated(ledger)
    ledger.seal(page, 7, ROOT, b"x", is_planned=False)
    ledger.release([page])
    assert ledger.allocate() == page
    assert ledger.take_changes() == ([], [])


@pytest.mark.parametrize("is_planned", [True, False])
def test_content_of_a_lost_plan_is_forgotten_and_that_of_an_applied_one_kept(is_planned: bool) -> None:
    ledger = PageLedger(4, LruEviction(4))
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
    ledger = PageLedger(2, LruEviction(2))
    page = allocated(ledger)
    ledger.seal(page, 7, ROOT, b"tokens", is_planned=False)
    assert ledger.find(7, ROOT, b"tokens") == page
    assert ledger.find(7, ROOT, b"others") is None


@pytest.mark.parametrize("held_by", [[], [[1]], [[0], [0]], [[0, 1]]])
def test_an_audit_finds_leaks_and_foreign_holders(held_by: list[list[int]]) -> None:
    ledger = PageLedger(2, LruEviction(2))
    page = ledger.allocate()
    assert page == 0
    ledger.audit([[page]])
    with pytest.raises(AssertionError, match="page"):
        ledger.audit(held_by)


def test_a_held_page_is_never_handed_out() -> None:
    ledger = PageLedger(2, LruEviction(2))
    page = ledger.allocate()
    assert page is not None
    ledger._free.appendleft(page)
    with pytest.raises(AssertionError, match="was free, and held by 1"):
        ledger.allocate()


def test_an_audit_finds_a_page_that_got_lost() -> None:
    ledger = PageLedger(2, LruEviction(2))
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
