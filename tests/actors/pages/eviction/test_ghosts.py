"""Ghosts: contents that come back are counted, old ones are forgotten, a large cache is sampled."""

from __future__ import annotations

import random

import numpy as np
import pytest

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.ghosts import Ghosts
from actors.pages.eviction.lru import LruEviction
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.page_hash import page_hashes
from messages.steps import PAGE_TOKENS


def test_a_content_that_comes_back_is_counted_once_unless_it_is_too_old() -> None:
    ghosts = Ghosts(2)
    for content_hash in (1, 2, 3):
        ghosts.evicted(content_hash)
    for content_hash in (1, 2, 2, 4):
        ghosts.computed(content_hash)
    assert ghosts.hits == 1
    ghosts.kept(3)
    ghosts.computed(3)
    assert ghosts.hits == 1


def test_the_sample_of_a_large_cache_stands_for_all() -> None:
    chance, ghosts = random.Random(5), Ghosts(100_000)
    hashes = [chance.getrandbits(64) | 1 for _ in range(20_000)]  # as those of pages are
    for content_hash in hashes:
        ghosts.evicted(content_hash)
    for content_hash in hashes:
        ghosts.computed(content_hash)
    assert abs(ghosts.hits - 20_000) < 2_000
    assert len(ghosts.hashes) == 0


@pytest.mark.parametrize("name", EvictionName)
@pytest.mark.parametrize("n_pages", [64, 8192])
def test_every_policy_counts_pages_that_are_computed_again(name: EvictionName, n_pages: int) -> None:
    ledger = ForgettingLedger(n_pages, make_eviction(name, n_pages))
    half = n_pages // 2
    first, second, third = (page_hashes(np.arange(start, start + half * PAGE_TOKENS)).tolist() for start in range(3))
    for hashes in (first, second, third, first):
        _compute(ledger, hashes)
    figures = ledger.statistics().by_policy
    assert ledger.statistics().evictions == n_pages
    assert 0.7 * half <= sum(one.ghost_hits for one in figures.values()) <= 1.3 * half


def test_a_content_that_another_page_still_has_is_no_ghost() -> None:
    ledger = ForgettingLedger(3, LruEviction(3))
    one, same = ledger.allocate_all(2)
    ledger.seal(one, 1, ROOT, b"a", is_planned=False)
    ledger.seal(same, 1, ROOT, b"a", is_planned=False)
    ledger.release([one])
    ledger.allocate_all(2)
    assert ledger.inventory() == [1]
    assert ledger.statistics().by_policy["lru"].evictions == 1
    assert ledger._ghosts.hashes == {}


def _compute(ledger: ForgettingLedger, hashes: list[int]) -> None:
    """A sequence with these pages, half of which it takes one by one."""
    n_single = len(hashes) // 2
    pages = [page for page in (ledger.allocate() for _ in range(n_single)) if page is not None]
    pages += ledger.allocate_all(len(hashes) - n_single)
    for page, content_hash, parent in zip(pages, hashes, [ROOT, *hashes], strict=False):
        ledger.seal(page, content_hash, parent, b"x", is_planned=True)
    ledger.commit_plan()
    ledger.apply_plan()
    ledger.release(pages)
