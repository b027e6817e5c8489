"""Pages of different roots are different pages, for the ledger, for the gateways' questions, and for the next scheduler."""

from __future__ import annotations

import numpy as np

from actors.pages.chain_root import ROOT, root_of
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_hash import page_hash, page_hashes
from actors.pages.page_ledger import PageLedger
from actors.pages.seal_table import format_table, table_bytes

TOKENS = np.arange(32, dtype="<i4")


def test_roots_are_even_and_hashes_of_pages_odd() -> None:
    circles = [(b"", "a"), (b"", "b"), (b"a", ""), (b"a", "a"), (b"aa", ""), (b"b" * 8, "")]
    roots = [root_of(*circle) for circle in circles]
    assert len({ROOT, *roots}) == len(roots) + 1
    assert not any(root % 2 for root in roots)
    assert all(content % 2 for root in (ROOT, *roots) for content in page_hashes(TOKENS, root).tolist())
    assert root_of(b"", "") == ROOT


def test_gateways_ask_for_the_pages_of_a_root() -> None:
    asked = [page_hashes(TOKENS, root).tolist() for root in (ROOT, root_of(b"me", ""), root_of(b"me", "salt"))]
    assert len({content for contents in asked for content in contents}) == 6


def test_the_next_scheduler_adopts_the_pages_of_every_root_and_keeps_them_apart() -> None:
    table = format_table(bytearray(table_bytes(8)), 1, 8)
    tokens, mine, yours = TOKENS[:16].tobytes(), root_of(b"me", ""), root_of(b"you", "")
    first = page_hash(mine, tokens)
    table.record(3, first, mine, tokens)
    table.record(5, page_hash(first, tokens), first, tokens)
    table.record(6, page_hash(99, tokens), 99, tokens)  # the page before it is gone
    ledger = PageLedger(8, LruEviction(8), table)
    assert ledger.adopt() == 2
    assert ledger.find(first, mine, tokens) == 3
    assert ledger.find(page_hash(first, tokens), first, tokens) == 5
    assert ledger.find(page_hash(yours, tokens), yours, tokens) is None
