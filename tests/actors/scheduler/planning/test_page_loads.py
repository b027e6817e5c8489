"""Loads go in pieces: of a bounded number of pages, one at a time, in turns."""

from __future__ import annotations

import random

import pytest

from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.planning.page_loads import LoadPiece, PageLoad, PageLoads
from actors.scheduler.planning.pending_stores import PendingStores, Store
from messages.caches.page_moves import MOST_MOVED, PagesMoved
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s
from tests.support.depth import at_depth


def _load(first_page: int, n_pages: int) -> PageLoad:
    contents = [(2 * page + 1, 0, bytes(4 * PAGE_TOKENS)) for page in range(first_page, first_page + n_pages)]
    return PageLoad(contents, list(range(first_page, first_page + n_pages)), before=[])


class _Ranks:
    """Two ranks that answer when the test says so."""

    def __init__(self, page_s: float = 0.001) -> None:
        self.cost, self.now_s = LoadCost(), 0.0
        self.cost.page_s = page_s
        self.loads = PageLoads(2, self.cost, lambda: self.now_s)
        self.number = 0

    def next(self, stored: tuple[int, ...] = ()) -> LoadPiece | None:
        self.number += 1
        return self.loads.next_piece(self.number, stored.__contains__)

    def answer(self, failed: tuple[int, ...] = ()) -> LoadPiece:
        moved = PagesMoved(epoch=1, number=self.number, failed=int32s(failed), load_s=0.1)
        assert self.loads.moved("worker/0.0", PagesMoved(epoch=1, number=self.number)) is None
        assert self.loads.moved("worker/0.0", PagesMoved(epoch=1, number=self.number)) is None, "an answer that comes twice"
        piece = self.loads.moved("worker/0.1", moved)
        assert piece is not None
        return piece


def test_the_next_piece_goes_when_all_ranks_have_answered() -> None:
    ranks, load = _Ranks(), _load(10, 12)
    ranks.loads.begin(load)
    pages: list[int] = []
    for n_pages in (5, 5, 2):
        piece = ranks.next()
        assert piece is not None
        assert len(piece.pages) == n_pages
        pages += piece.pages
        assert ranks.loads.targets == set(range(10, 22)) - set(pages)
        number = ranks.number
        assert ranks.next() is None
        ranks.number = number
        ranks.answer()
        assert load.n_good == len(pages)
    assert pages == load.pages
    assert ranks.next() is None


def test_a_page_that_is_stored_first_counts_twice() -> None:
    ranks = _Ranks()
    ranks.loads.begin(_load(0, 12))
    piece = ranks.next(stored=(0, 1, 3))
    assert piece is not None
    assert piece.pages == [0, 1, 2]


def test_loads_take_turns() -> None:
    ranks = _Ranks()
    for first_page in (0, 100):
        ranks.loads.begin(_load(first_page, 12))
    firsts: list[int] = []
    while (piece := ranks.next()) is not None:
        firsts.append(piece.pages[0])
        ranks.answer()
    assert firsts == [0, 100, 5, 105, 10, 110]


def test_a_load_is_good_up_to_the_first_page_that_failed_on_any_rank() -> None:
    ranks, load = _Ranks(), _load(0, 12)
    ranks.loads.begin(load)
    ranks.next()
    ranks.answer()
    ranks.next()
    assert ranks.answer(failed=(4, 3)).failed == {3, 4}
    assert load.n_good == 8


def test_a_load_that_has_ended_is_sent_no_further() -> None:
    ranks, load, other = _Ranks(), _load(0, 12), _load(50, 2)
    for each in (load, other):
        ranks.loads.begin(each)
    ranks.next()
    ranks.loads.wait(7, load)
    ranks.loads.end(load)
    assert not ranks.loads.is_waiting(7)
    assert ranks.loads.arriving(load.contents[9][0]) is None
    assert ranks.loads.targets == {50, 51}
    assert ranks.loads.moved("worker/0.0", PagesMoved(epoch=1, number=ranks.number)) is None
    piece = ranks.next()
    assert piece is not None
    assert piece.load is other


def test_an_answer_is_late_some_seconds_after_its_piece_was_sent() -> None:
    ranks = _Ranks()
    ranks.loads.begin(_load(0, 12))
    ranks.now_s = 100.0
    assert not ranks.loads.is_late
    ranks.next()
    ranks.now_s = 104.0
    assert not ranks.loads.is_late
    ranks.now_s = 105.0
    assert ranks.loads.is_late


@pytest.mark.parametrize(
    ("page_s", "step_s", "most"),
    [(None, 0.1, 16), (0.0, 0.1, MOST_MOVED), (1e-9, 0.1, MOST_MOVED), (0.0005, 0.01, 10), (0.0005, 0.1, 50), (1.0, 0.1, 1)],
)
def test_a_piece_takes_five_milliseconds_or_a_quarter_of_a_step(page_s: float | None, step_s: float, most: int) -> None:
    cost = LoadCost(lambda: step_s)
    cost.page_s = page_s
    assert cost.most_pages == most


@pytest.mark.parametrize(("page_s", "most"), [(None, 512), (1e-9, MOST_MOVED), (0.0005, 100), (1.0, 1)])
def test_a_piece_beside_steps_takes_fifty_milliseconds(page_s: float | None, most: int) -> None:
    cost = LoadCost(lambda: 1.0)
    cost.page_s, cost.is_beside = page_s, True
    assert cost.most_pages == most


@pytest.mark.parametrize("seed", range(at_depth(3)))
def test_pending_stores_name_each_page_and_each_place_once(seed: int) -> None:
    rng = random.Random(seed)
    stores, expected = PendingStores(), dict[int, Store]()  # by place
    for content_hash in range(1, 400):
        page, place = rng.randrange(30), rng.randrange(20)
        pages, places = [rng.randrange(30) for _ in range(3)], [rng.randrange(20) for _ in range(3)]
        match rng.randrange(4):
            case 0:
                taken = stores.take_except(pages)
                assert taken == [store for store in expected.values() if store.page not in pages]
            case 1:
                taken = stores.take_of(pages, places)
                assert set(taken) == {store for store in expected.values() if store.page in pages or store.place in places}
            case _:
                taken = []
                expected.pop(place, None)
                if all(store.page != page for store in expected.values()):
                    expected[place] = Store(page, place, content_hash)
                    stores.add(expected[place])
                else:
                    taken = stores.take_of([], [place])
        expected = {place: store for place, store in expected.items() if store not in taken}
        assert len(stores) == len(expected)
        assert {page for page in range(30) if page in stores} == {store.page for store in expected.values()}
