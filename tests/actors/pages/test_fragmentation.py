"""Fragmentation refuses nothing: a request that needs exactly as many pages as are available gets them, wherever they lie."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.lru import LruEviction
from actors.pages.page_ledger import PageLedger
from actors.pages.sizing.sized_ledger import SizedLedger
from actors.pages.sizing.working_set import SizingRule
from tests.support.depth import examples

_N_PAGES = 64


@pytest.mark.parametrize("is_sized", [False, True])
@given(seed=st.integers(0, 2**32), n_turns=st.integers(1, 200), window=st.integers(1, 40))
@examples(60)
def test_a_request_for_all_available_pages_gets_them_after_any_use(
    is_sized: bool, seed: int, n_turns: int, window: int
) -> None:
    chance, clock = random.Random(seed), [0.0]
    ledger = PageLedger(_N_PAGES, LruEviction(_N_PAGES))
    if is_sized:
        ledger = SizedLedger(_N_PAGES, LruEviction(_N_PAGES), None, SizingRule(1.0, 0.0), now_s=lambda: clock[0])
        ledger.begin(4, is_new=True)
    holders: list[list[int]] = []
    for turn in range(n_turns):
        n_pages = chance.randint(1, 12)
        if n_pages <= ledger.n_available and chance.random() < 0.6:
            holders.append([page for _ in range(n_pages) if (page := ledger.allocate()) is not None])
            if chance.random() < 0.5:
                ledger.seal(holders[-1][0], seed + turn + 1, 0, b"%d" % turn, is_planned=False)
        elif holders:
            ledger.release(holders.pop(chance.randrange(len(holders))))
        if isinstance(ledger, SizedLedger) and turn % window == 0:
            clock[0] += 1.0
            ledger.give_back(lambda page: False)
    n_available = ledger.n_available
    assert n_available == _N_PAGES - sum(map(len, holders))
    pages = [ledger.allocate() for _ in range(n_available)]
    assert sorted([*(page for page in pages if page is not None), *(p for held in holders for p in held)]) == list(
        range(_N_PAGES)
    )
    assert ledger.allocate() is None
