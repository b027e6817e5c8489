"""What holds for every policy: what it refuses, the order among equals, and whole prefixes under random use of a ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.page_hash import page_hash
from actors.pages.page_ledger import PageLedger
from tests.support.depth import examples

_N_PAGES = 24
_EVERY = pytest.mark.parametrize("name", EvictionName)
_PROMPTS = st.lists(st.tuples(st.text("ab", min_size=1, max_size=8), st.integers(0, 3)), min_size=1, max_size=60)


@_EVERY
def test_what_is_not_cached_cannot_be_evicted_or_removed(name: EvictionName) -> None:
    policy = make_eviction(name, 8)
    with pytest.raises(KeyError):
        policy.evict()
    policy.learn(3, 30, ROOT)
    with pytest.raises(KeyError):
        policy.remove([3])
    policy.add([3])
    assert 3 in policy
    policy.drop(3)
    assert 3 not in policy
    with pytest.raises(KeyError):
        policy.evict()


@_EVERY
def test_among_equals_the_first_given_back_goes_first(name: EvictionName) -> None:
    policy = make_eviction(name, 16)
    for page in (5, 2, 9, 1):
        policy.learn(page, 100 + page, ROOT)
    policy.add([5, 2, 9])
    policy.add([1])
    assert [policy.evict() for _ in range(4)] == [5, 2, 9, 1]


@_EVERY
@given(prompts=_PROMPTS)
@examples(60)
def test_pages_in_use_stay_and_prefixes_stay_whole(name: EvictionName, prompts: list[tuple[str, int]]) -> None:
    """Each letter is a page. A prompt stays for as many others as its number says; then it gives its pages back."""
    ledger, running = PageLedger(_N_PAGES, make_eviction(name, _N_PAGES)), list[tuple[int, list[int]]]()
    for number, (text, n_others) in enumerate(prompts):
        _enter(ledger, text, running, number + n_others)
        for end, held in list(running):
            if end <= number:
                ledger.release(held)
                running.remove((end, held))
        ledger.audit([held for _, held in running])
        for content_hash, parent, _ in ledger._content.values():
            assert parent == ROOT or parent in ledger._page_of, f"{content_hash} is there, and its prefix is not"
    statistics = ledger.statistics()
    assert sum(figures.hits for figures in statistics.by_policy.values()) == statistics.hits
    assert sum(figures.evictions for figures in statistics.by_policy.values()) == statistics.evictions


def _enter(ledger: PageLedger, text: str, running: list[tuple[int, list[int]]], end: int) -> None:
    contents, parent = [], ROOT
    for letter in text:
        content = page_hash(parent, letter.encode()), parent, letter.encode()
        contents.append(content)
        parent = content[0]
    held: list[int] = []
    for content in contents:
        if (page := ledger.find(*content)) is None:
            break
        held.append(page)
    ledger.acquire(held)
    ledger.count_hits(held)
    in_use = {page for _, pages in running for page in pages} | set(held)
    for content in contents[len(held) :]:
        page = ledger.allocate()
        if page is None:
            break
        assert page not in in_use
        in_use.add(page)
        ledger.seal(page, *content, is_planned=True)
        held.append(page)
    ledger.commit_plan()
    ledger.apply_plan()
    running.append((end, held))
