"""Callers above their part of the cached pages lose theirs first; all that holds for a policy holds with parts too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.chain_root import root_of
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.owned_entries import CacheShares
from actors.pages.forgetting import RootScopes
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.page_hash import page_hash
from tests.support.depth import examples

_N_PAGES = 24
_SCOPES = (b"", b"a", b"b", b"c")
_VISITS = st.lists(st.tuples(st.sampled_from(_SCOPES), st.text("xyz", min_size=1, max_size=6), st.integers(0, 2)), max_size=60)


class _Rig:
    """A ledger whose scopes have parts from `bound` on. A letter is a page."""

    def __init__(self, name: EvictionName = EvictionName.LRU, **shares: float) -> None:
        self.roots, self.shares = RootScopes(), CacheShares()
        for scope, share in shares.items():
            self.shares.note(scope.encode(), share)
        self.ledger = ForgettingLedger(_N_PAGES, make_eviction(name, _N_PAGES))

    def bound(self) -> None:
        self.ledger.bound_caches(self.shares, self.roots)

    def enter(self, scope: bytes, text: str) -> list[int] | None:
        """The pages of a prompt that is computed, as far as they are not there; None if there is no room."""
        root = parent = root_of(scope, "")
        self.roots.note(root, scope)
        held = list[int]()
        contents = list[tuple[int, int, bytes]]()
        for letter in text:
            contents.append((page_hash(parent, letter.encode()), parent, letter.encode()))
            parent = contents[-1][0]
        for content in contents:
            if (page := self.ledger.find(*content)) is None:
                break
            held.append(page)
        self.ledger.acquire(held)
        self.ledger.count_hits(held)
        for content in contents[len(held) :]:
            if (page := self.ledger.allocate()) is None:
                self.ledger.release(held)
                return None
            self.ledger.seal(page, *content, is_planned=True)
            held.append(page)
        self.ledger.commit_plan()
        self.ledger.apply_plan()
        return held

    def visit(self, scope: bytes, text: str) -> None:
        held = self.enter(scope, text)
        assert held is not None
        self.ledger.release(held)

    def n_cached(self, scope: bytes) -> int:
        """Known pages of a scope."""
        tops = {root_of(scope, "")}
        known = {content_hash: parent for content_hash, parent, _ in self.ledger._content.values()}
        n = 0
        while below := [one for one, parent in known.items() if parent in tops]:
            n, tops = n + len(below), set(below)
        return n


@pytest.mark.parametrize("is_bound_first", [True, False])
def test_who_has_more_than_its_part_loses_its_own_pages_first(is_bound_first: bool) -> None:
    rig = _Rig(a=0.25)
    if is_bound_first:
        rig.bound()
    rig.visit(b"b", "xyzxyz")  # the oldest: it would leave first
    for number in range(6):
        rig.visit(b"a", chr(ord("p") + number) + "xy")
    rig.bound()
    rig.visit(b"c", "xyzxyz")
    assert (rig.n_cached(b"a"), rig.n_cached(b"b"), rig.n_cached(b"c")) == (12, 6, 6)
    rig.visit(b"c", "zxyzxyz")
    assert (rig.n_cached(b"a"), rig.n_cached(b"b")) == (6, 5), "at its part the policy chooses among all"
    assert rig.ledger.statistics().by_policy["share"].evictions == 12


def test_a_part_that_nobody_else_needs_is_no_bound() -> None:
    rig = _Rig(a=0.1)
    rig.bound()
    for number in range(6):
        rig.visit(b"a", chr(ord("p") + number) + "xy")
    assert rig.n_cached(b"a") == 18


def test_a_caller_without_a_part_any_more_is_as_all_others() -> None:
    rig = _Rig(a=0.1)
    rig.bound()
    rig.shares.note(b"a", 1.0)
    rig.visit(b"b", "xyzxyz")
    for number in range(6):
        rig.visit(b"a", chr(ord("p") + number) + "xy")
    rig.visit(b"c", "xyz")
    assert (rig.n_cached(b"a"), rig.n_cached(b"b")) == (18, 3)


@pytest.mark.parametrize("name", EvictionName)
@given(visits=_VISITS, bound_at=st.integers(0, 40))
@examples(60)
def test_pages_in_use_stay_and_prefixes_stay_whole(
    name: EvictionName, visits: list[tuple[bytes, str, int]], bound_at: int
) -> None:
    rig, running = _Rig(name, a=0.2, b=0.5), list[tuple[int, list[int]]]()
    for number, (scope, text, n_others) in enumerate(visits):
        if number == bound_at:
            rig.bound()
        if (held := rig.enter(scope, text)) is not None:
            running.append((number + n_others, held))
        for end, pages in list(running):
            if end <= number:
                rig.ledger.release(pages)
                running.remove((end, pages))
        rig.ledger.audit([pages for _, pages in running])
        for _, parent, _ in rig.ledger._content.values():
            assert parent % 2 == 0 or parent in rig.ledger._page_of, "its prefix is not there"
    statistics = rig.ledger.statistics()
    assert sum(figures.evictions for figures in statistics.by_policy.values()) == statistics.evictions
