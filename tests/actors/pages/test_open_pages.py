"""Partly filled pages: a table says how far, and the ledger of the next scheduler gives each to the sequence that goes on."""

from __future__ import annotations

import numpy as np

from actors.pages.chain_root import ROOT
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_hash import page_hash
from actors.pages.page_ledger import PageLedger
from actors.pages.seal_table import SealTable, format_table, table_bytes
from messages.steps import PAGE_TOKENS

FIRST = np.arange(100, 100 + PAGE_TOKENS, dtype=np.int32)
REST = np.arange(200, 200 + PAGE_TOKENS, dtype=np.int32)
PARENT = page_hash(ROOT, FIRST.tobytes())


def table_of(n_pages: int) -> SealTable:
    return format_table(bytearray(table_bytes(n_pages)), 7, n_pages)


def one(number: int) -> np.ndarray:
    return np.array([number])


def test_a_record_goes_on_token_by_token() -> None:
    table = table_of(3)
    table.record_open(2, 1, PARENT, REST[:2].tobytes())
    for n_tokens in range(2, PAGE_TOKENS):
        assert table.extend_open(one(2), one(n_tokens), REST[n_tokens : n_tokens + 1]).tolist() == [True]
        assert table.open_tokens(2) == REST[:n_tokens].tobytes()
    assert table.read_open().parents.tolist() == [PARENT]
    assert not len(table.read().pages)


def test_a_record_that_does_not_stand_one_token_before_is_left_alone() -> None:
    table = table_of(4)
    table.record_open(1, 5, PARENT, REST[:6].tobytes())
    table.record(3, PARENT, ROOT, FIRST.tobytes())
    before = bytes(table._buffer)
    pages, n_tokens = np.array([1, 1, 0, 0, 3, 2]), np.array([5, 7, 1, 2, 4, 0])
    for page, n in zip(pages, n_tokens, strict=True):
        assert table.extend_open(one(page), one(n), one(9)).tolist() == [False]
    assert bytes(table._buffer) == before


def left_by(n_tokens: int, parent: int = PARENT) -> PageLedger:
    """The ledger of a scheduler whose predecessor has filled page 0, and page 1 up to so many tokens."""
    table = table_of(4)
    table.record(0, PARENT, ROOT, FIRST.tobytes())
    table.record_open(1, n_tokens, parent, REST[: n_tokens + 1].tobytes())
    ledger = PageLedger(4, LruEviction(4), table)
    assert ledger.adopt() == 1
    ledger.audit([])
    return ledger


def test_a_sequence_takes_the_page_that_was_left_for_it() -> None:
    for n_known in range(1, PAGE_TOKENS):  # it may know fewer tokens than were computed, or more
        ledger = left_by(9)
        assert ledger.take_open(PARENT, REST[:n_known].tobytes()) == (1, min(n_known, 9))
        assert ledger.take_open(PARENT, REST[:n_known].tobytes()) is None
        ledger.audit([[1]])
        ledger.release([1])
        ledger.audit([])


def test_only_equal_tokens_after_the_same_page_count() -> None:
    other = REST.copy()
    other[3] = 7
    assert left_by(9).take_open(PARENT, other.tobytes()) == (1, 3)
    assert left_by(9).take_open(PARENT, FIRST.tobytes()) is None
    assert left_by(9).take_open(ROOT, REST.tobytes()) is None
    assert left_by(9, ROOT).take_open(PARENT, REST.tobytes()) is None


def test_a_page_that_is_taken_or_free_has_no_record() -> None:
    ledger = left_by(9)
    table = ledger._seals
    assert table is not None
    assert ledger.take_open(PARENT, REST.tobytes()) == (1, 9)
    assert not len(table.read_open().pages)
    table.record_open(1, 10, PARENT, REST[:11].tobytes())
    ledger.release([1])
    assert not len(table.read_open().pages)


def test_pages_that_nobody_takes_are_used_last() -> None:
    ledger = left_by(9)
    assert ledger.n_available == 4
    assert [ledger.allocate() for _ in range(5)] == [2, 3, 0, 1, None]
    ledger.audit([[0, 1, 2, 3]])
    assert ledger._seals is not None
    assert not len(ledger._seals.read_open().pages)
