"""Pages of the host tier that lie on disk as well: when they are written there, and when they come back to the host tier. Pure.

A content is written once others were used half as often as the host tier has places. Each use puts one content behind it in the
order of overwriting, so it is written well before it is overwritten. One that is on disk already is not written again.

A sequence that is to enter, and whose next pages lie partly on disk, waits while a *read* brings these to places of the host
tier, if that and the load to the device are expected to take less time than to compute them. Then it looks again, and a load of
the host tier brings them to the device.

A read holds places of the host tier, which have no content until every rank has answered. It pins what it reads, and what the
host tier has of the same prefix. A sequence waits for one read of its own in each stay, and each read has a deadline.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from actors.pages.host_ledger import Content, HostLedger
from actors.pages.seal_table import private_table
from actors.pages.tier_loads import TierLoads
from actors.scheduler.disk_contents import DiskContents, disk_moves
from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.sequences.sequence import Sequence
from messages.caches.disk_moves import MOST_DISK_PAGES, DiskMoves, DiskPagesMoved

_MOST_READS = 8  # at once
_LIMIT_S = 5.0  # of a read; ranks give up before
_READ_S = 2.0  # that one read should take at most
_FIRST_PAGES = 64  # of a read, while their time is not known


@dataclass
class _Found:
    """The next pages of a sequence, up to the first one that neither tier has."""

    kept: list[Content] = field(default_factory=list)  # that the host tier has
    wanted: list[tuple[int, Content]] = field(default_factory=list)  # on disk alone: index in the sequence, content
    awaited: _Read | None = None  # that brings the page after these


@dataclass
class _Read:
    """Pages on their way from the disk to the host tier."""

    number: int  # of its moves
    contents: list[Content]
    places: list[int]  # of the host tier, for these contents
    disk_places: list[int]
    kept: list[Content]  # of the same prefix, which the host tier has
    began_s: float
    n_before: int  # pages of the prefix before the first of these
    load_page_s: float  # expected time of a load to the device for each page
    failed: set[int] = field(default_factory=set)  # indices of contents that some rank has not
    took_s: float = 0.0  # on the slowest rank
    answered: set[str] = field(default_factory=set)  # ranks

    @property
    def pages(self) -> list[tuple[int, int, Content]]:
        """Places on disk and of the host tier, and contents."""
        return list(zip(self.disk_places, self.places, self.contents, strict=True))


@dataclass
class DiskMoveCounts:
    """What was moved since the scheduler began, in pages."""

    written: int = 0
    read: int = 0
    failed: int = 0
    read_s: float = 0.0
    saved_s: float = 0.0  # that computing these pages would have taken, without the times of reads and of loads to the device


class DiskTier:
    """The disk tier of one gang after the other. cost: what steps of the gang cost. contents: of the disk. on_reserved: is
    called with places of the host tier whose contents are forgotten, so that nothing is stored there any more. now_s: the
    monotonic clock."""

    def __init__(
        self,
        n_ranks: int,
        choice: TierLoads,
        cost: StepCost,
        contents: DiskContents,
        on_reserved: Callable[[list[int]], object],
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._n_ranks, self._choice, self._cost = n_ranks, choice, cost
        self.contents, self._on_reserved, self._now_s = contents, on_reserved, now_s
        self._host = HostLedger(private_table(0, 0))
        self._epoch = self._number = 0
        self._read_cost = LoadCost()
        self._reads: dict[int, _Read] = {}  # by number
        self._arriving: dict[int, _Read] = {}  # by hash of a content
        self._waiting: dict[int, _Read] = {}  # by number of the sequence that waits
        self._used: deque[Content] = deque()  # of the host tier, in the order of use; the next to be written first
        self._writes: dict[int, tuple[int, Content]] = {}  # unsent ones, by place on disk: place, content
        self._unsent: list[_Read] = []
        self.counts = DiskMoveCounts()

    @property
    def _disk(self) -> HostLedger:
        return self.contents.ledger

    @property
    def n_places(self) -> int:
        """Pages that it can hold; 0: there is no tier."""
        return self._disk.n_places

    # -- epochs -----------------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int, host: HostLedger, n_places: int) -> None:
        """Plans of this epoch follow. host: the ledger of the host tier; n_places: of each rank. Contents stay known: ranks
        that have lost them fail to read them, once for each read."""
        if host is not self._host:
            self.end_epoch()
            self._used.clear()
        self._epoch, self._host = epoch, host
        self.contents.begin(n_places)
        if not self.contents.is_forgotten:
            self.clear()

    def end_epoch(self) -> None:
        """Moves that have not been answered may never be done."""
        self._drop_moves()
        self.contents.end_epoch()

    def _drop_moves(self) -> None:
        for read in list(self._reads.values()):
            self._end(read, is_good=False)
        for _, content in self._writes.values():
            self._disk.discard(content[0])
        self._writes.clear()
        self._unsent.clear()

    def clear(self) -> None:
        """Forget all contents, also those that are on their way, and let the ranks forget them. The host tier does so
        afterwards."""
        self._drop_moves()
        self.contents.forget()
        self._used.clear()

    # -- reads ------------------------------------------------------------------------------------------------------

    def must_wait(self, sequence: Sequence, n_shared: int, n_pages: int, load_page_s: float) -> bool:
        """True if a sequence should wait for pages that come from the disk. n_shared: pages of its prefix that the device has,
        fewer than `n_pages`, the most that it could share. load_page_s: expected time of a load to the device for each page.
        May begin a read, for which the host tier overwrites old contents."""
        if not self.n_places:
            return False
        if sequence.number in self._waiting:
            return True
        if sequence.disk_stay == sequence.stay:
            return False
        found = self._look(sequence, n_shared, n_pages)
        read = found.awaited
        if found.wanted and (begun := self._begin(found, load_page_s)) is not None:
            sequence.disk_stay, read = sequence.stay, begun
        if read is None:
            return False
        self._waiting[sequence.number] = read
        return True

    def _look(self, sequence: Sequence, first: int, end: int) -> _Found:
        found = _Found()
        for index in range(first, end):
            content = sequence.page_content(index)
            if self._host.find(content) is not None:
                found.kept.append(content)
            elif (read := self._arriving.get(content[0])) is not None:
                found.awaited = read
                return found
            elif self._disk.find(content) is not None and len(found.wanted) < MOST_DISK_PAGES:
                found.wanted.append((index, content))
            else:
                return found
        return found

    def _begin(self, found: _Found, load_page_s: float) -> _Read | None:
        wanted = found.wanted[: self._most_pages()]
        if len(self._reads) >= _MOST_READS or not self._is_faster(wanted, load_page_s):
            return None
        self._host.pin(found.kept)
        places: list[int] = []
        while len(places) < len(wanted) and (place := self._host.reserve(wanted[len(places)][1])) is not None:
            places.append(place)
        if not places:
            self._host.unpin(found.kept)
            return None
        self._on_reserved(places)
        contents = [content for _, content in wanted[: len(places)]]
        self._number += 1
        n_before, pinned = wanted[0][0], self._disk.pin(contents)
        read = _Read(self._number, contents, places, pinned, found.kept, self._now_s(), n_before, load_page_s)
        self._reads[read.number] = read
        self._arriving.update(dict.fromkeys((content[0] for content in contents), read))
        self._unsent.append(read)
        self.note_used(*contents)
        return read

    def _most_pages(self) -> int:
        """Pages that one read may have: it must end in time, and most of the host tier stays as it is."""
        page_s = self._read_cost.page_s
        in_time = _FIRST_PAGES if page_s is None else int(_READ_S / max(page_s, 1e-9))
        return max(1, min(in_time, self._host.n_in_use // 4))

    def _is_faster(self, wanted: list[tuple[int, Content]], load_page_s: float) -> bool:
        """True if the pages from the first wanted one to the last are there sooner than computed, or nothing is known."""
        if self._choice is TierLoads.ALWAYS or not self._cost.is_known:
            return True
        first, n_pages = wanted[0][0], wanted[-1][0] + 1 - wanted[0][0]
        return self._read_cost.is_below(len(wanted), self._cost.pages_s(first, n_pages) - load_page_s * n_pages)

    # -- moves ------------------------------------------------------------------------------------------------------

    def note_used(self, *contents: Content) -> None:
        """The host tier overwrites these contents last. One that was so long ago is to be written to the disk."""
        if not self.n_places:
            return
        self._used.extend(contents)
        while len(self._used) > self._host.n_in_use // 2:
            old = self._used.popleft()
            place = self._host.find(old)
            if place is not None and (disk_place := self._disk.store(old)) is not None:
                self._writes[disk_place] = place, old

    def take_moves(self) -> list[DiskMoves]:
        """What every rank is to do, after the stores of the host tier that came before."""
        first = self.contents.take(self._epoch, self._next)
        writes, self._writes = [(place, at, content) for at, (place, content) in self._writes.items()], {}
        reads, self._unsent = [read for read in self._unsent if read.number in self._reads], []
        self.counts.written += len(writes)
        starts = range(0, len(writes), MOST_DISK_PAGES)
        moves = [disk_moves(self._epoch, self._next(), writes[at : at + MOST_DISK_PAGES]) for at in starts]
        return [*first, *moves, *(disk_moves(self._epoch, read.number, reads=read.pages) for read in reads)]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def moved(self, rank: str, answer: DiskPagesMoved) -> None:
        """A rank has read the pages of one message of this epoch, or its disk has forgotten all."""
        self.contents.moved(rank, answer.number)
        read = self._reads.get(answer.number)
        if read is None:
            return
        read.answered.add(rank)
        read.failed.update(answer.failed.tolist())
        read.took_s = max(read.took_s, answer.read_s)
        if len(read.answered) < self._n_ranks:
            return
        n_good = len(read.contents) - len(read.failed)
        self.counts.read += n_good
        self.counts.failed += len(read.failed)
        self.counts.read_s += read.took_s
        if self._cost.is_known:
            self.counts.saved_s += self._cost.pages_s(read.n_before, n_good) - read.took_s - read.load_page_s * n_good
        if n_good:  # else the disk may be off, which takes no time
            self._read_cost.learn(n_good, read.took_s)
        self._end(read, is_good=True)
        for index in read.failed:
            self._disk.discard(read.contents[index][0])

    def give_up_late(self) -> int:
        """End reads whose answers are overdue: their sequences compute. Returns how many."""
        late = [read for read in self._reads.values() if self._now_s() - read.began_s >= _LIMIT_S]
        for read in late:
            self.counts.failed += len(read.contents)
            self._read_cost.learn(len(read.contents), _LIMIT_S)
            self._end(read, is_good=False)
        if self.contents.give_up_late():
            self.clear()
        return len(late)

    def _end(self, read: _Read, *, is_good: bool) -> None:
        """The pages of a read that have not failed are in the host tier, if the read `is_good`."""
        del self._reads[read.number]
        self._arriving = {hashed: other for hashed, other in self._arriving.items() if other is not read}
        self._waiting = {number: other for number, other in self._waiting.items() if other is not read}
        for index in reversed(range(len(read.contents))):  # a page is overwritten after those that continue it
            if is_good and index not in read.failed:
                self._host.fill(read.places[index], read.contents[index])
            else:
                self._host.give_back(read.places[index])
        self._host.unpin(read.kept)
        self._disk.unpin(read.contents)
