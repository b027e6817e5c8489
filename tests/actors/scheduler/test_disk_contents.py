"""What the scheduler knows of the disk: adopted with a vault, asked for without one, and forgotten for good."""

from __future__ import annotations

import random

import numpy as np
import pytest

from actors.pages.host_ledger import Content
from actors.pages.page_hash import page_hash
from actors.pages.seal_table import NoSeals, SealTable, private_table
from actors.scheduler.disk_contents import LIMIT_S, DiskContents
from messages.caches.disk_moves import DiskMoves, DiskPagesFound, FindDiskPages, MoveDiskPages
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s

_N_PLACES = 20


class _Kept(NoSeals):
    table: SealTable | None = None

    def left(self) -> SealTable | None:
        return self.table

    def open(self, generation: int, n_pages: int) -> SealTable | None:
        if self.table is None or (self.table.generation, self.table.n_pages) != (generation, n_pages):
            self.table = private_table(generation, n_pages)
        return self.table


class _Stage:
    """A scheduler's knowledge, and ranks with these contents by place."""

    def __init__(self, *ranks: dict[int, Content], seals: NoSeals | None = None) -> None:
        self.now_s, self.number, self.ranks = 1000.0, 0, ranks
        self.contents = DiskContents(len(ranks), seals or NoSeals(), lambda: self.now_s)
        self.contents.prepare()
        self.contents.begin(_N_PLACES)

    def take(self) -> list[DiskMoves]:
        return self.contents.take(1, self._next)

    def _next(self) -> int:
        self.number += 1
        return self.number

    def ask_all(self, most: int = 100) -> int:
        """Let all ranks answer all questions. Returns how many there were."""
        n = 0
        while messages := self.take():
            n += 1
            (wanted,) = messages
            assert isinstance(wanted, FindDiskPages)
            for rank, held in enumerate(self.ranks):
                self.contents.found(f"worker/0.{rank}", _found(wanted, held, most))
        return n

    def known(self) -> dict[int, Content]:
        ledger = self.contents.ledger
        return {place: ledger._table.content(place) for place in ledger._entries.values()}


def _found(wanted: FindDiskPages, held: dict[int, Content], most: int) -> DiskPagesFound:
    places = sorted(place for place in held if place < wanted.before)[-most:]
    return DiskPagesFound(
        epoch=wanted.epoch,
        number=wanted.number,
        first=places[0] if len(places) == most else 0,
        places=int32s(places),
        hashes=uint64s([held[place][0] for place in places]),
        parents=uint64s([held[place][1] for place in places]),
        tokens=np.frombuffer(b"".join(held[place][2] for place in places), "<i4"),
    )


def _content(number: int, parent: int = 0) -> Content:
    tokens = np.full(PAGE_TOKENS, number, "<i4").tobytes()
    return page_hash(parent, tokens), parent, tokens


@pytest.mark.parametrize("most", [1, 3, 100])
def test_what_all_ranks_have_at_one_place_is_adopted(most: int) -> None:
    rng = random.Random(most)
    common = {place: _content(place) for place in rng.sample(range(_N_PLACES), 12)}
    first, second = dict(common), dict(common)
    for place in list(common)[:4]:
        del (first if rng.random() < 0.5 else second)[place]
        del common[place]
    other = next(iter(common))
    first[other] = _content(99)
    del common[other]
    stage = _Stage(first, second)
    assert stage.ask_all(most) >= 12 // most
    assert stage.known() == common
    assert not stage.contents.is_asking


def test_a_content_that_is_not_what_its_hash_says_is_not_adopted() -> None:
    content_hash, parent, _ = _content(1)
    stage = _Stage({3: (content_hash, parent, _content(2)[2]), 4: _content(5)})
    stage.ask_all()
    assert stage.known() == {4: _content(5)}


def test_what_is_stored_meanwhile_stays_and_the_oldest_place_is_overwritten_first() -> None:
    stage = _Stage({place: _content(place) for place in range(_N_PLACES)})
    (wanted,) = stage.take()
    assert isinstance(wanted, FindDiskPages)
    assert stage.contents.ledger.store(_content(50)) == 0
    stage.contents.found("worker/0.0", _found(wanted, stage.ranks[0], 100))
    assert stage.known() == {place: _content(place) for place in range(1, _N_PLACES)} | {0: _content(50)}
    assert [stage.contents.ledger.store(_content(60 + n)) for n in range(_N_PLACES)] == [*range(1, _N_PLACES), 0]


def test_places_that_were_adopted_are_free_again_once() -> None:
    stage = _Stage({place: _content(place) for place in range(5)})
    stage.ask_all()
    for number in range(5):
        stage.contents.ledger.discard(_content(number)[0])
    places = [stage.contents.ledger.reserve(_content(90)) for _ in range(_N_PLACES + 1)]
    assert sorted(place for place in places if place is not None) == list(range(_N_PLACES))


def test_with_a_vault_the_next_scheduler_knows_all_and_asks_nothing() -> None:
    seals = _Kept()
    first = _Stage({}, seals=seals)
    first.ask_all()
    first.contents.ledger.store(_content(1))
    second = _Stage({}, seals=seals)
    assert second.known() == {0: _content(1)}
    assert second.take() == []


def test_questions_without_an_answer_are_asked_again_and_given_up_at_last() -> None:
    stage = _Stage({3: _content(1)})
    n_asked = 0
    while stage.contents.is_asking:
        n_asked += len(stage.take())
        stage.now_s += LIMIT_S
        stage.contents.give_up_late()
        assert n_asked < 100
    assert n_asked == 6
    assert stage.take() == []


def test_an_epoch_that_ends_asks_again() -> None:
    stage = _Stage({3: _content(1)})
    (lost,) = stage.take()
    assert isinstance(lost, FindDiskPages)
    stage.contents.end_epoch()
    assert stage.take() == [], "there is no gang"
    stage.contents.begin(_N_PLACES)
    stage.ask_all()
    stage.contents.found("worker/0.0", _found(lost, {4: _content(2)}, 100))
    assert stage.known() == {3: _content(1)}


def test_an_order_to_forget_is_repeated_until_all_ranks_have_answered() -> None:
    stage = _Stage({3: _content(1)}, {3: _content(1)})
    stage.contents.forget()
    assert not stage.contents.is_asking
    (order,) = stage.take()
    assert isinstance(order, MoveDiskPages)
    assert order.is_cleared
    stage.contents.moved("worker/0.0", int(order.number))
    assert not stage.contents.is_forgotten
    stage.contents.end_epoch()
    stage.contents.begin(_N_PLACES)
    (again,) = stage.take()
    stage.now_s += LIMIT_S
    assert stage.contents.give_up_late()
    for rank in range(2):
        stage.contents.moved(f"worker/0.{rank}", int(again.number))
    assert stage.contents.is_forgotten
    assert stage.take() == []


def test_without_a_disk_nothing_is_asked_or_ordered() -> None:
    contents = DiskContents(1, NoSeals(), lambda: 0.0)
    contents.forget()
    contents.begin(0)
    assert contents.is_forgotten
    contents.forget()
    assert contents.is_forgotten
    assert contents.take(1, lambda: 1) == []
