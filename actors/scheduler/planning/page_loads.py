"""Loads from the host tier that have begun and not ended, and the pieces in which they go to the ranks. Pure.

A rank runs a piece between two plans, and nothing else meanwhile. So a piece has a bounded number of pages, the next one is
sent when every rank has answered, and loads take turns. Of what waits before a plan, at most one piece is a load.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import Content
from actors.scheduler.planning.load_cost import LoadCost
from messages.caches.exchange import PagesExchanged
from messages.caches.page_moves import PagesMoved

_MOST_LOADS = 16
_PIECE_LIMIT_S = 5.0
_EARLY_S = 1.0  # after an early answer; then the ranks are tried again


@dataclass(eq=False)
class PageLoad:
    """Pages on their way to the device."""

    contents: list[Content]
    pages: list[int]  # of these contents
    before: list[int]  # pages of the prefix that it continues
    owner: int | None = None  # number of the sequence whose prefix it is
    places: list[int] = field(default_factory=list)  # of these contents, in the host tier; they are pinned
    n_sent: int = 0  # pages that a message has named
    n_good: int = 0  # pages that have their content

    @property
    def is_sent(self) -> bool:
        """True once messages have named all of its pages."""
        return self.n_sent == len(self.pages)

    @property
    def is_whole(self) -> bool:
        """True once all of its pages have their content."""
        return self.n_good == len(self.pages)

    def give_to(self, ledger: ForgettingLedger) -> None:
        """Give all pages back. The first ones are sealed: they have their content, the others have none."""
        before = self.before[-1] if self.before else None
        ledger.seal_all(self.pages[: self.n_good], self.contents, before)
        ledger.release([*self.before, *self.pages])


@dataclass(eq=False)
class LoadPiece:
    """Pages [first, end) of a load. They are on their way."""

    number: int  # of its moves
    load: PageLoad
    first: int
    end: int
    sent_s: float
    failed: set[int] = field(default_factory=set)  # indices in the piece of contents that some rank has not
    took_s: float = 0.0  # on the slowest rank
    answered: set[str] = field(default_factory=set)  # ranks
    is_early: bool = False  # the places of some rank cannot be used yet

    @property
    def pages(self) -> list[int]:
        return self.load.pages[self.first : self.end]

    @property
    def contents(self) -> list[Content]:
        return self.load.contents[self.first : self.end]

    @property
    def places(self) -> list[int]:
        return self.load.places[self.first : self.end]


class PageLoads:
    """All loads of one gang. n_ranks: that answer. cost: decides how long a piece is. now_s: the monotonic clock."""

    def __init__(self, n_ranks: int, cost: LoadCost, now_s: Callable[[], float]) -> None:
        self._n_ranks, self._cost, self._now_s = n_ranks, cost, now_s
        self._loads: list[PageLoad] = []
        self._unsent: deque[PageLoad] = deque()  # those of which a part is not sent; the next in turn first
        self._piece: LoadPiece | None = None  # that is on its way
        self._arriving: dict[int, PageLoad] = {}  # by hash of a content
        self.has_arriving = self._arriving.__contains__  # True for the hash of a content that a load brings
        self._waiting: dict[int, PageLoad] = {}  # by number of the sequence that waits
        self.come: list[PageLoad] = []  # loads that are whole, and have not ended
        self.targets: set[int] = set()  # pages that no message has named yet
        self._early_until_s = -math.inf
        self._has_sent = False  # a message has named the last pages of a load since `take_sent`

    def __iter__(self) -> Iterator[PageLoad]:
        return iter(list(self._loads))

    @property
    def is_early(self) -> bool:
        """A rank has just said that its places cannot be used yet: nothing should be stored or loaded for a moment."""
        return self._now_s() < self._early_until_s

    @property
    def is_busy(self) -> bool:
        """True while there is a load, and for a moment after an early answer."""
        return bool(self._loads) or self.is_early

    @property
    def is_full(self) -> bool:
        """No other load may begin."""
        return len(self._loads) >= _MOST_LOADS

    def begin(self, load: PageLoad) -> None:
        """The next pieces are of this load too."""
        self._loads.append(load)
        self._unsent.append(load)
        self.targets.update(load.pages)
        self._arriving.update(dict.fromkeys((content[0] for content in load.contents), load))

    def end(self, load: PageLoad) -> None:
        """Nobody waits for this load any more."""
        self._loads.remove(load)
        for some in (self._unsent, self.come):
            if load in some:
                some.remove(load)
        if self._piece is not None and self._piece.load is load:
            self._piece = None
        self.targets.difference_update(load.pages)
        for content in load.contents:
            if self._arriving.get(content[0]) is load:
                del self._arriving[content[0]]
        self._waiting = {number: other for number, other in self._waiting.items() if other is not load}

    def arriving(self, content_hash: int) -> PageLoad | None:
        """The load that brings this content."""
        return self._arriving.get(content_hash)

    def wait(self, number: int, load: PageLoad) -> None:
        """The sequence with this number waits until this load ends."""
        self._waiting[number] = load

    def sent_for(self, number: int) -> PageLoad | None:
        """The load that the sequence with this number waits for, if it is of its own prefix and all of it is sent."""
        load = self._waiting.get(number)
        return load if load is not None and load.owner == number and load.is_sent else None

    def take_sent(self) -> bool:
        """True if a load was sent to its end since the last call, so that its sequence may enter ahead of it."""
        has_sent, self._has_sent = self._has_sent, False
        return has_sent

    def is_waiting(self, number: int) -> bool:
        """True while the sequence with this number waits for a load."""
        return number in self._waiting

    def next_piece(self, number: int, is_stored: Callable[[int], bool]) -> LoadPiece | None:
        """The piece to send now, as moves with this number; None: there is none, or the ranks have one. is_stored: True for a
        page whose present content must be stored before it is overwritten, which takes as long as its load."""
        if self._piece is not None or not self._unsent:
            return None
        load = self._unsent.popleft()
        first, n_moves, most = load.n_sent, 0, self._cost.most_pages
        for end, page in enumerate(load.pages[first : first + max(most, 1)], first + 1):
            n_moves += 1 + is_stored(page)
            load.n_sent = end
            if n_moves >= most:
                break
        end = load.n_sent
        if load.is_sent:
            self._has_sent = True
        else:
            self._unsent.append(load)
        self.targets.difference_update(load.pages[first:end])
        self._piece = LoadPiece(number, load, first, end, self._now_s())
        return self._piece

    def moved(self, rank: str, answer: PagesMoved | PagesExchanged) -> LoadPiece | None:
        """A rank has answered. Returns the piece once every rank has answered it; then the load knows how far it has come."""
        is_early = isinstance(answer, PagesMoved) and answer.is_early
        if is_early:
            self._early_until_s = self._now_s() + _EARLY_S
        piece = self._piece
        if piece is None or piece.number != answer.number:
            return None
        piece.answered.add(rank)
        piece.is_early |= is_early
        piece.failed.update(answer.failed.tolist())
        piece.took_s = max(piece.took_s, answer.load_s)
        if len(piece.answered) < self._n_ranks:
            return None
        self._piece = None
        piece.load.n_good = piece.first + min(piece.failed, default=piece.end - piece.first)
        if piece.load.is_whole:
            self.come.append(piece.load)
        return piece

    @property
    def is_late(self) -> bool:
        """True if the ranks should have answered."""
        return self._piece is not None and self._now_s() - self._piece.sent_s >= _PIECE_LIMIT_S
