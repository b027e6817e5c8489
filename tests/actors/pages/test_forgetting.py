"""Which pages are forgotten, and what becomes of those that somebody holds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from actors.pages.chain_root import ROOT, root_of
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.forgetting import Forgetting, RootScopes
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.page_hash import page_hash
from actors.pages.seal_table import SealTable, format_table, table_bytes
from messages.steps import PAGE_TOKENS

_N_PAGES = 24
MINE, YOURS = root_of(b"me", ""), root_of(b"you", "")


def tokens_of(*pages: int) -> bytes:
    """Tokens of full pages, each full of one number."""
    return np.repeat(np.array(pages, "<i4"), PAGE_TOKENS).tobytes()


class Bench:
    """A ledger with a clock and a seal table, and sequences whose pages are full of one number each."""

    def __init__(self, eviction: EvictionName = EvictionName.LRU) -> None:
        self.now_s = 0.0
        self.table: SealTable = format_table(bytearray(table_bytes(_N_PAGES)), 1, _N_PAGES)
        policy = make_eviction(eviction, _N_PAGES)
        self.ledger = ForgettingLedger(_N_PAGES, policy, self.table, lambda: self.now_s)
        self.roots = RootScopes()
        for root, scope in ((MINE, b"me"), (YOURS, b"you")):
            self.roots.note(root, scope)

    def contents(self, numbers: tuple[int, ...], root: int = ROOT) -> list[tuple[int, int, bytes]]:
        found, parent = [], root
        for number in numbers:
            content = page_hash(parent, tokens_of(number)), parent, tokens_of(number)
            found.append(content)
            parent = content[0]
        return found

    def compute(self, *numbers: int, root: int = ROOT, is_planned: bool = False) -> list[int]:
        """A sequence shares what it finds, and computes the other pages. Returns its pages, which it holds."""
        pages: list[int] = []
        for content in self.contents(numbers, root):
            page = self.ledger.find(*content)
            if page is not None:
                self.ledger.acquire([page])
            elif (page := self.ledger.allocate()) is None:
                break
            else:
                self.ledger.seal(page, *content, is_planned=is_planned, before=pages[-1] if pages else None)
            pages.append(page)
        return pages

    def cache(self, *numbers: int, root: int = ROOT) -> None:
        """A sequence computes these pages and ends."""
        self.ledger.release(self.compute(*numbers, root=root))

    def n_found(self, *numbers: int, root: int = ROOT) -> int:
        """How many leading pages are found."""
        found = [self.ledger.find(*content) is not None for content in self.contents(numbers, root)]
        return (*found, False).index(False)

    def forget(self, **conditions: object) -> int:
        n_pages = self.ledger.forget(Forgetting(**conditions), self.roots)  # type: ignore[arg-type]
        assert len(self.table.read().pages) <= self.ledger.n_known
        return n_pages


@pytest.mark.parametrize("eviction", EvictionName)
def test_everything_is_forgotten_for_the_next_scheduler_too(eviction: EvictionName) -> None:
    bench = Bench(eviction)
    bench.cache(1, 2, 3)
    bench.cache(4, root=MINE)
    assert bench.forget() == 4
    assert (bench.n_found(1, 2, 3), bench.n_found(4, root=MINE)) == (0, 0)
    bench.ledger.audit([])
    after = ForgettingLedger(_N_PAGES, make_eviction(eviction, _N_PAGES), bench.table)
    assert after.adopt() == 0
    pages = bench.compute(*range(_N_PAGES))
    assert len(pages) == _N_PAGES, "all of them are free"


def test_a_scope_is_that_of_the_roots_of_its_requests() -> None:
    bench = Bench()
    unknown = root_of(b"", "of an earlier scheduler")
    for root in (ROOT, MINE, YOURS, unknown):
        bench.cache(1, 2, root=root)
    assert bench.forget(scope=b"me") == 4, "its own, and those of which nobody knows whose they are"
    assert [bench.n_found(1, 2, root=root) for root in (ROOT, MINE, YOURS, unknown)] == [2, 0, 2, 0]
    assert bench.forget(scope=b"") == 2
    assert bench.n_found(1, 2, root=YOURS) == 2


@pytest.mark.parametrize(
    ("prefix", "left"),
    [
        (tokens_of(1), (0, 0, 0, 2)),
        (tokens_of(1, 2), (1, 1, 2, 2)),
        (tokens_of(1, 2, 3), (2, 3, 2, 2)),
        (tokens_of(1)[:8], (0, 0, 0, 2)),
        (tokens_of(1, 9)[:-4], (3, 3, 1, 2)),
        (tokens_of(1, 2, 4, 5), (3, 2, 2, 2)),
        (tokens_of(7), (3, 3, 2, 2)),
        (b"", (0, 0, 0, 0)),
    ],
)
def test_prompts_that_begin_alike_are_forgotten_and_what_others_share_stays(prefix: bytes, left: tuple[int, ...]) -> None:
    bench, prompts = Bench(), [(1, 2, 3), (1, 2, 4), (1, 9), (8, 1)]
    for prompt in prompts:
        bench.cache(*prompt)
    bench.forget(tokens=prefix)
    assert tuple(bench.n_found(*prompt) for prompt in prompts) == left, (
        "pages inside of a prefix stay while a page continues them"
    )


def test_what_is_older_is_forgotten_with_all_that_continues_it() -> None:
    bench = Bench()
    bench.cache(1, 2)
    bench.cache(5)
    bench.now_s = 60.0
    bench.cache(1, 2, 3)
    bench.cache(6)
    assert bench.forget(older_than_s=61.0) == 0
    assert bench.forget(older_than_s=60.0, tokens=tokens_of(1)) == 3, "3 is younger, and nobody could find it"
    assert (bench.n_found(5), bench.n_found(6)) == (1, 1)
    assert bench.forget(older_than_s=0.0) == 2


def test_pages_of_an_earlier_scheduler_are_older_than_any_age() -> None:
    bench = Bench()
    bench.cache(1, 2)
    after = ForgettingLedger(_N_PAGES, make_eviction(EvictionName.LRU, _N_PAGES), bench.table, lambda: 0.0)
    assert after.adopt() == 2
    assert after.forget(Forgetting(older_than_s=1e9), RootScopes()) == 2


def test_held_pages_stay_and_neither_they_nor_what_continues_them_is_found() -> None:
    bench = Bench()
    held = bench.compute(1, 2)
    assert bench.forget() == 2
    bench.ledger.audit([held])
    more = bench.ledger.allocate()
    assert more is not None
    content = bench.contents((1, 2, 3))[2]
    bench.ledger.seal(more, *content, is_planned=False, before=held[-1])
    assert bench.ledger.find(*content) is None
    bench.cache(1, 2)
    assert bench.n_found(1, 2, 3) == 2, "what was computed since is found"
    bench.ledger.release([*held, more])
    bench.ledger.audit([])
    assert bench.n_found(1, 2, 3) == 2


def test_a_duplicate_of_a_forgotten_page_is_forgotten() -> None:
    bench = Bench()
    pages, content = [bench.ledger.allocate(), bench.ledger.allocate()], bench.contents((1,))[0]
    for page in pages:
        assert page is not None
        bench.ledger.seal(page, *content, is_planned=False)
    assert bench.forget() == 1
    assert bench.n_found(1) == 0
    bench.ledger.release([page for page in pages if page is not None])
    assert bench.n_found(1) == 0
    bench.ledger.audit([])


def test_a_forgotten_page_is_lost_with_the_plan_that_computes_it() -> None:
    bench = Bench()
    applied = bench.compute(1, is_planned=True)
    bench.ledger.commit_plan()
    bench.ledger.apply_plan()
    computed = bench.compute(2, is_planned=True)
    bench.ledger.commit_plan()
    bench.forget()
    assert bench.ledger.drop_unapplied() == set(computed), "its holders must compute it again"
    bench.ledger.audit([applied, computed])


def test_tails_are_forgotten() -> None:
    bench = Bench()
    page = bench.ledger.allocate()
    assert page is not None
    bench.ledger.tails.add(page, ROOT, tokens_of(1)[:20])
    bench.ledger.commit_plan()
    assert bench.ledger.tails.find(ROOT, tokens_of(1)) == (page, 5)
    bench.forget(scope=b"you")
    assert bench.ledger.tails.find(ROOT, tokens_of(1)) is None


@pytest.mark.parametrize("eviction", EvictionName)
def test_any_history_keeps_every_count_right(eviction: EvictionName) -> None:
    """Random sequences, ends, plans, losses and resets: no page is lost or held twice, and none is known without its prefix."""
    for seed in range(25):
        chance, bench, held = random.Random(seed), Bench(eviction), list[list[int]]()
        for _ in range(60):
            draw = chance.random()
            numbers = tuple(chance.randrange(3) for _ in range(chance.randrange(1, 5)))
            root = chance.choice((ROOT, MINE, YOURS))
            if draw < 0.5:
                held.append(bench.compute(*numbers, root=root, is_planned=True))
            elif draw < 0.7 and held:
                bench.ledger.release(held.pop(chance.randrange(len(held))))
            elif draw < 0.8:
                bench.ledger.commit_plan()
            elif draw < 0.85 and bench.ledger._unapplied:
                bench.ledger.apply_plan()
            elif draw < 0.9:
                bench.ledger.drop_unapplied()
            else:
                prefix = tokens_of(*numbers)[: chance.randrange(0, 300, 4)]
                conditions = {
                    "scope": chance.choice((None, b"me")),
                    "tokens": prefix,
                    "older_than_s": chance.choice((0.0, 2.0)),
                }
                bench.forget(**conditions)
            bench.now_s += 1.0
            bench.ledger.audit(held)
            for page in bench.ledger._hash_of:
                _, parent, _ = bench.ledger._content_of(page)
                assert parent % 2 == 0 or parent in bench.ledger._page_of, "its prefix is gone"
        for pages in held:
            bench.ledger.release(pages)
        bench.ledger.audit([])
        assert not bench.ledger._forgotten, "nobody holds a page any more"


def test_what_came_from_elsewhere_is_older_than_any_age() -> None:
    bench = Bench()
    pages = bench.compute(1, 2)
    bench.ledger.note_old(pages[0])
    assert bench.ledger.forget(Forgetting(older_than_s=1e6), bench.roots) == 2, "and what continues it goes too"


def test_the_age_of_the_oldest_content_is_told() -> None:
    bench = Bench()
    assert bench.ledger.statistics().oldest_s == 0.0
    bench.now_s = 20.0
    bench.cache(1)
    bench.now_s = 25.0
    bench.cache(2)
    bench.now_s = 32.0
    assert bench.ledger.statistics().oldest_s == 12.0
