"""A ledger whose pages in use follow the load: it is never too small for what fits, and gives back what is not needed."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_ledger import PageLedger
from actors.pages.seal_table import private_table
from actors.pages.sizing.sized_ledger import SizedLedger
from actors.pages.sizing.working_set import SizingRule
from tests.support.depth import examples
from tests.support.scheduler.ledger_machine import LedgerMachine, allocated, check_every_page

_QUIET_S = 60.0


def _never(page: int) -> bool:
    return False


class SizedMachine(LedgerMachine):
    """The same use as of any ledger; time passes, and memory is given back."""

    def new_ledger(self) -> PageLedger:
        self.now_s, self.is_with_system = 0.0, set[int]()
        rule = SizingRule(_QUIET_S, 0.0)
        self.sized = SizedLedger(12, make_eviction(self.eviction, 12), None, rule, now_s=lambda: self.now_s)
        self.sized.begin(3, is_new=True)
        return self.sized

    @rule(n_windows=st.integers(0, 3), data=st.data())
    def give_back(self, n_windows: int, data: st.DataObject) -> None:
        is_read = set(data.draw(st.lists(st.integers(0, 11), max_size=3)))
        for _ in range(n_windows):
            self.now_s += _QUIET_S
            given = self.sized.give_back(is_read.__contains__)
            assert not is_read & set(given)
            assert len(set(given)) == len(given)
            assert not set(given) & {page for held in self.holders for page in held}
        self.content = {page: content for page, content in self.content.items() if page in self.sized._hash_of}

    @invariant()
    def is_never_below_what_it_needs(self) -> None:
        held = len({page for pages in self.holders for page in pages})
        assert self.sized.n_in_use >= max(3, held)


@pytest.mark.parametrize("name", EvictionName)
def test_the_laws_of_the_ledger_hold_while_its_size_changes(name: EvictionName) -> None:
    class Machine(SizedMachine):
        eviction = name

    run_state_machine_as_test(Machine, settings=examples(40, stateful_step_count=40))


class _Ledger:
    """A ledger of 200 pages that began with 8, and its clock."""

    def __init__(self, spare_share: float = 0.0) -> None:
        self.now_s = 0.0
        self.ledger = SizedLedger(200, LruEviction(200), None, SizingRule(_QUIET_S, spare_share), now_s=lambda: self.now_s)
        self.ledger.begin(8, is_new=True)

    def run(self, n_pages: int, first_hash: int) -> list[int]:
        """A sequence fills pages with new contents, and ends. Returns the pages."""
        pages = [allocated(self.ledger) for _ in range(n_pages)]
        for index, page in enumerate(pages):
            self.ledger.seal(page, first_hash + index, first_hash + index - 1, b"%d" % (first_hash + index), is_planned=True)
        self.ledger.commit_plan()
        self.ledger.apply_plan()
        self.ledger.release(pages)
        return pages

    def windows(self, n: int) -> list[list[int]]:
        """Let so many windows pass. Returns what was given back at the end of each."""
        given = []
        for _ in range(n):
            self.now_s += _QUIET_S
            given.append(self.ledger.give_back(_never))
        return given


def test_it_begins_small_and_grows_only_by_what_sequences_hold() -> None:
    bench = _Ledger()
    assert (bench.ledger.n_in_use, bench.ledger.n_available) == (8, 200), "admission sees what can be had"
    bench.run(6, 100)
    bench.run(6, 200)
    assert bench.ledger.n_in_use == 8, "cached pages that nobody asks for are overwritten first"
    bench.run(50, 300)
    assert bench.ledger.n_in_use == 50
    assert bench.ledger.n_available == 200


def test_it_grows_by_each_page_that_was_evicted_and_is_computed_again() -> None:
    bench = _Ledger()
    for _ in range(3):  # three prompts of six pages come again and again
        for first_hash in (100, 200, 300):
            bench.run(6, first_hash)
    assert 12 < bench.ledger.n_in_use <= 8 + 18
    n_in_use = bench.ledger.n_in_use
    for first_hash in range(1000, 3000, 100):  # these come once
        bench.run(6, first_hash)
    assert bench.ledger.n_in_use <= n_in_use + 18


def test_it_gives_back_what_two_windows_did_not_need_and_a_part_at_a_time() -> None:
    bench = _Ledger()
    bench.run(150, 1000)
    assert [len(pages) for pages in bench.windows(2)] == [0, 0], "the first window needed them"
    given = bench.windows(1) + [bench.ledger.give_back(_never) for _ in range(3)]
    assert [len(pages) for pages in given] == [64, 64, 14, 0]
    assert bench.ledger.n_in_use == 8
    assert bench.ledger.statistics().returned == 192
    assert bench.ledger.statistics().cached == 8, "beginnings of prompts stay longest"
    check_every_page(bench.ledger, [])


def test_what_is_reused_is_needed() -> None:
    bench = _Ledger(spare_share=0.5)
    pages = bench.run(40, 1000)
    for _ in range(4):
        bench.ledger.acquire(pages[:10])
        bench.ledger.count_hits(pages[:10])
        bench.ledger.release(pages[:10])
        bench.windows(1)
    assert bench.ledger.n_in_use == 15
    assert all(page in bench.ledger._hash_of for page in pages[:10])


def test_growth_ends_a_shrinking_that_is_under_way() -> None:
    bench = _Ledger()
    bench.run(150, 1000)
    assert len(bench.windows(3)[2]) == 64
    pages = [allocated(bench.ledger) for _ in range(100)]
    assert bench.ledger.n_in_use == 100
    bench.ledger.release(pages)
    assert bench.ledger.give_back(_never) == []


def test_a_page_that_is_still_to_be_copied_stays_until_it_is() -> None:
    bench = _Ledger()
    pages = bench.run(20, 1000)
    to_be_copied = set(pages[5:])
    bench.now_s += _QUIET_S
    bench.ledger.give_back(_never)
    bench.now_s += _QUIET_S
    bench.ledger.give_back(_never)
    bench.now_s += _QUIET_S
    assert not to_be_copied & set(bench.ledger.give_back(to_be_copied.__contains__))
    assert set(bench.ledger.give_back(_never)) <= to_be_copied
    assert bench.ledger.n_in_use == 8


def test_a_ledger_that_adopts_contents_begins_with_these() -> None:
    table = private_table(1, 50)
    for page in range(20):
        table.record(page, 1000 + page, 1000 + page - 1 if page else ROOT, b"0" * 64)
    ledger = SizedLedger(50, LruEviction(50), table, SizingRule(_QUIET_S, 0.0))
    assert ledger.adopt() == 20
    ledger.begin(8, is_new=True)
    assert (ledger.n_in_use, ledger.statistics().cached) == (20, 20)
    assert sorted([*ledger.returned, *ledger._hash_of]) == list(range(50))


@pytest.mark.parametrize("n_least", [0, 200, 900])
def test_without_a_least_size_all_pages_are_in_use(n_least: int) -> None:
    ledger = SizedLedger(200, LruEviction(200), None, SizingRule(_QUIET_S, 0.0))
    ledger.begin(n_least, is_new=True)
    assert ledger.n_in_use == 200
