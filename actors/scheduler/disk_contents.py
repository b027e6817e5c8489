"""What is on the disk, as far as the scheduler knows: the ledger of its places, the questions to ranks that fill it after a
start, and the order to forget all. Pure.

With a vault the ledger outlives the scheduler. Without one, and after a restart of the server, it is empty, and the scheduler
asks what the files of the ranks have: a piece at a time, from the last place to the first. What all ranks have at one place is
adopted. Pages are stored in free places from the first one on, so a store meanwhile meets the questions late. Adopted contents
are overwritten first, in the order of their places, in which they were stored while the file grew.

What is forgotten must not be found by asking later. So the ranks are told to forget, again in each epoch and every five
seconds, until all of them have answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from actors.pages.host_ledger import Content, HostLedger
from actors.pages.page_hash import page_hash
from actors.pages.seal_table import Seals, SealTable, private_table
from messages.caches.disk_moves import DiskMoves, DiskPagesFound, FindDiskPages, MoveDiskPages
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s

LIMIT_S = 5.0  # of an answer
_PAUSE_S = 10.0  # before a question that was not answered is asked again
_MOST_UNANSWERED = 6  # questions; then what is not known yet stays unknown
_GENERATION = 1  # of the table: files outlive all memory of the ranks


@dataclass
class _Unanswered:
    """A message that every rank has to answer."""

    number: int
    asked_s: float
    answered: set[str] = field(default_factory=set)  # ranks


@dataclass
class _DiskQuestion(_Unanswered):
    first: int = 0  # all ranks have looked at the places from here on
    common: dict[int, Content] | None = None  # by place, what all ranks have that have answered


class DiskContents:
    """The contents of the disk of one gang after the other. seals: where the table outlives the scheduler."""

    def __init__(self, n_ranks: int, seals: Seals, now_s: Callable[[], float]) -> None:
        self._n_ranks, self._seals, self._now_s = n_ranks, seals, now_s
        self.ledger = HostLedger(private_table(0, 0))
        self._left: SealTable | None = None  # of the last scheduler
        self._has_begun = self._is_in_epoch = False
        self._before = 0  # nobody has asked about the places below this one
        self._question: _DiskQuestion | None = None  # on its way
        self._not_before_s, self._n_unanswered = 0.0, 0
        self.is_forgotten = True  # False: some rank may still have what should be forgotten
        self._order: _Unanswered | None = None  # to forget, on its way
        self.n_adopted = 0

    @property
    def is_asking(self) -> bool:
        """The ranks may have contents that are not known yet."""
        return self._before > 0

    def prepare(self) -> None:
        """Look for the table of the last scheduler."""
        if not self._has_begun and self._left is None:
            self._left = self._seals.left()

    def begin(self, n_places: int) -> None:
        """The ranks have this many places; 0: there is no disk tier. The ledger stays if it is of as many."""
        self._is_in_epoch = True
        if self._has_begun and n_places == self.ledger.n_places:
            return
        left, self._left, self._has_begun = self._left, None, True
        if left is None or (left.generation, left.n_pages) != (_GENERATION, n_places):
            left = self._seals.open(_GENERATION, n_places) if n_places else None
        self.ledger = HostLedger(left or private_table(_GENERATION, n_places))
        self._question, self._not_before_s, self._n_unanswered = None, 0.0, 0
        self._before = n_places if not len(self.ledger) else 0
        self.is_forgotten |= not n_places

    def end_epoch(self) -> None:
        """What is on its way may never be answered."""
        self._question = self._order = None
        self._is_in_epoch = False

    def forget(self) -> None:
        """Forget all contents. No place may be pinned."""
        self.ledger.clear()
        self._before, self._question, self._order = 0, None, None
        self.is_forgotten = self._has_begun and not self.ledger.n_places

    def take(self, epoch: int, next_number: Callable[[], int]) -> list[DiskMoves]:
        """What to send to every rank now, before other moves of the disk."""
        if not self._is_in_epoch or not self.ledger.n_places:
            return []
        now_s = self._now_s()
        if not self.is_forgotten and self._order is None:
            self._order = _Unanswered(next_number(), now_s)
            return [disk_moves(epoch, self._order.number, is_cleared=True)]
        if self._before and self._question is None and now_s >= self._not_before_s:
            self._question = _DiskQuestion(next_number(), now_s)
            return [FindDiskPages(epoch=epoch, number=self._question.number, before=self._before)]
        return []

    def moved(self, rank: str, number: int) -> None:
        """A rank has answered a message with this number: it may be the order to forget."""
        if self._order is None or self._order.number != number:
            return
        self._order.answered.add(rank)
        if len(self._order.answered) == self._n_ranks:
            self._order, self.is_forgotten = None, True

    def found(self, rank: str, answer: DiskPagesFound) -> None:
        """A rank says what its disk has. What all ranks have is adopted once they have answered."""
        question = self._question
        if question is None or question.number != answer.number or rank in question.answered:
            return
        contents = _contents_of(answer)
        known = question.common
        question.common = {place: one for place, one in contents.items() if known is None or known.get(place) == one}
        question.first = max(question.first, answer.first)
        question.answered.add(rank)
        if len(question.answered) == self._n_ranks:
            self._adopt(question.common, question.first)
            self._before, self._question, self._n_unanswered = min(question.first, self._before - 1), None, 0

    def _adopt(self, contents: dict[int, Content], first: int) -> None:
        for place in sorted(contents, reverse=True):
            content = content_hash, parent, tokens = contents[place]
            if first <= place < self._before and page_hash(parent, tokens) == content_hash:
                self.n_adopted += self.ledger.adopt(place, content)

    def give_up_late(self) -> bool:
        """Give up what was not answered. Returns True if the ranks have to be told again to forget."""
        end_s = self._now_s() - LIMIT_S
        if self._question is not None and self._question.asked_s <= end_s:
            self._question, self._n_unanswered = None, self._n_unanswered + 1
            self._not_before_s = self._now_s() + _PAUSE_S
            if self._n_unanswered >= _MOST_UNANSWERED:
                self._before = 0
        return self._order is not None and self._order.asked_s <= end_s


def _contents_of(answer: DiskPagesFound) -> dict[int, Content]:
    tokens = answer.tokens.astype("<i4").reshape(-1, PAGE_TOKENS)
    rows = zip(answer.places.tolist(), answer.hashes.tolist(), answer.parents.tolist(), tokens, strict=True)
    return {place: (content_hash, parent, row.tobytes()) for place, content_hash, parent, row in rows}


def disk_moves(
    epoch: int,
    number: int,
    writes: Sequence[tuple[int, int, Content]] = (),
    reads: Sequence[tuple[int, int, Content]] = (),
    *,
    is_cleared: bool = False,
) -> MoveDiskPages:
    """One message. writes: place of the host tier, place of the disk, content; reads: place of the disk, place of the host
    tier, content."""
    return MoveDiskPages(
        epoch=epoch,
        number=number,
        written_places=int32s([place for place, _, _ in writes]),
        written_disk_places=int32s([disk_place for _, disk_place, _ in writes]),
        written_hashes=uint64s([content[0] for _, _, content in writes]),
        written_parents=uint64s([content[1] for _, _, content in writes]),
        written_tokens=np.frombuffer(b"".join(content[2] for _, _, content in writes), "<i4"),
        read_disk_places=int32s([disk_place for disk_place, _, _ in reads]),
        read_places=int32s([place for _, place, _ in reads]),
        read_hashes=uint64s([content[0] for _, _, content in reads]),
        is_cleared=is_cleared,
    )
