"""Pages that other replicas want of this one: which of them this one has, and when its ranks copy them to the exchange. Pure.

    PagesWanted -> loan: pages found and held -> pieces to the ranks, one at a time -> PagesLent

A page is held until its copy is done, because a plan may overwrite it, and with it the pages before it: else these could be
evicted first. What lies at a place stays there until other loans need the place: a prefix that several replicas want is copied
once. A place that is overwritten before it was read costs the reader a failed load. The ledger of places is of one epoch,
because the next ranks may have other memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import Content, HostLedger
from actors.pages.seal_table import private_table
from actors.scheduler.planning.load_cost import LoadCost
from messages.caches.exchange import PagesExchanged, PagesLent, PagesWanted
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, int64s

_MOST_LOANS = 8
_LOAN_PART = 2  # one loan may take one part of so many of all places
_PIECE_LIMIT_S = 5.0
_TOKEN_BYTES = 4


class Asker(NamedTuple):
    """Who wants pages: a scheduler, one life of it, and its number for this."""

    scheduler: str
    incarnation: int
    call: int


class Copy(NamedTuple):
    """A page is to be copied to a place of the exchange."""

    page: int
    place: int
    content: Content


class LoanAnswer(NamedTuple):
    """To be sent to a scheduler, if it still lives."""

    asker: Asker
    lent: PagesLent


@dataclass(eq=False)
class _Loan:
    asker: Asker
    contents: list[Content]
    kept: list[Content]  # of these, what has a place already
    copies: list[Copy]  # of the others
    held: list[int]  # pages: those that are copied, and all before them
    n_sent: int = 0
    n_done: int = 0


@dataclass(eq=False)
class LoanPiece:
    """Copies [first, end) of a loan. They are on their way."""

    number: int  # of its command
    loan: _Loan
    first: int
    end: int
    sent_s: float
    store_s: float = 0.0  # on the slowest rank
    answered: set[str] = field(default_factory=set)  # ranks

    @property
    def copies(self) -> list[Copy]:
        return self.loan.copies[self.first : self.end]


class Lending:
    """The loans of one gang after the other. step_s: what a step of the running sequences is expected to take. now_s: the
    monotonic clock."""

    def __init__(self, n_ranks: int, step_s: Callable[[], float], now_s: Callable[[], float]) -> None:
        self._n_ranks, self._now_s = n_ranks, now_s
        self._cost = LoadCost(step_s)
        self._ledger: ForgettingLedger | None = None  # of the present epoch
        self._places = HostLedger(private_table(0, 0))
        self._loans: deque[_Loan] = deque()
        self._piece: LoanPiece | None = None
        self._regions: dict[str, int] = {}  # by rank
        self._answers: list[LoanAnswer] = []
        self.n_lent = 0  # pages, since the scheduler began

    @property
    def contents(self) -> HostLedger:
        """What lies at the places, for other replicas."""
        return self._places

    @property
    def held(self) -> list[list[int]]:
        """The pages that loans hold."""
        return [loan.held for loan in self._loans]

    def begin_epoch(self, ledger: ForgettingLedger, n_places: int) -> None:
        """Plans of an epoch follow. n_places: of each rank."""
        self._ledger, self._places, self._regions = ledger, HostLedger(private_table(1, n_places)), {}

    def end_epoch(self) -> None:
        """Copies that have not been answered may never be done."""
        self.clear()
        self._ledger = None

    def clear(self) -> None:
        """Forget what lies at places, and what is on its way there. Those who wait for it compute."""
        while self._loans:
            self._end(self._loans[0], is_good=False)
        self._places.clear()

    def wanted(self, asker: Asker, message: PagesWanted) -> None:
        """A scheduler asks. One that asks again while it waits, because its message was repeated, is not answered twice."""
        if any(loan.asker == asker for loan in self._loans):
            return
        loan = self._begin(asker, message) if len(self._loans) < _MOST_LOANS else None
        if loan is None:
            self._answers.append(LoanAnswer(asker, PagesLent(call=asker.call)))
            return
        self._loans.append(loan)
        if not loan.copies:
            self._end(loan, is_good=True)

    def _begin(self, asker: Asker, message: PagesWanted) -> _Loan | None:
        if self._ledger is None:
            return None
        loan, pages = _Loan(asker, [], [], [], []), list[int]()
        missing: list[Content] = []
        for content in contents_of(message)[: self._places.n_places // _LOAN_PART]:
            if self._places.find(content) is not None:
                loan.kept.append(content)
            elif (page := self._ledger.find(*content)) is not None:
                missing.append(content)
                pages.append(page)
            else:
                break
            loan.contents.append(content)
        if not loan.contents:
            return None
        self._places.pin(loan.kept)
        for page, content in zip(pages, missing, strict=True):
            place = self._places.reserve(content)
            if place is None:  # other loans use all places
                del loan.contents[loan.contents.index(content) :]
                break
            loan.copies.append(Copy(page, place, content))
        if loan.copies:
            loan.held = self._ledger.prefix_of(loan.copies[-1].page)
            self._ledger.acquire(loan.held)
        return loan

    def next_piece(self, number: int) -> LoanPiece | None:
        """The copies to send now, as a command with this number; None: there are none, or the ranks have some."""
        if self._piece is not None or not self._loans:
            return None
        loan = self._loans[0]
        first = loan.n_sent
        loan.n_sent = min(first + self._cost.most_pages, len(loan.copies))
        self._piece = LoanPiece(number, loan, first, loan.n_sent, self._now_s())
        return self._piece

    def copied(self, rank: str, answer: PagesExchanged) -> None:
        """A rank has done the copies of one message, or something else."""
        self._regions[rank] = int(answer.region)
        piece = self._piece
        if piece is None or piece.number != answer.number:
            return
        piece.answered.add(rank)
        piece.store_s = max(piece.store_s, answer.store_s)
        if len(piece.answered) < self._n_ranks:
            return
        self._piece, loan = None, piece.loan
        self._cost.learn(piece.end - piece.first, piece.store_s)
        loan.n_done = piece.end
        if loan.n_done == len(loan.copies):
            self._end(loan, is_good=True)
        else:
            self._loans.rotate(-1)  # loans take turns

    def give_up_late(self) -> int:
        """End all loans if an answer of the ranks is overdue. Returns how many."""
        if self._piece is None or self._now_s() - self._piece.sent_s < _PIECE_LIMIT_S:
            return 0
        n_late = len(self._loans)
        while self._loans:
            self._end(self._loans[0], is_good=False)
        return n_late

    def take_answers(self, ranks: list[str]) -> list[LoanAnswer]:
        """What is to be sent to other schedulers. ranks: of the gang, in order."""
        answers, self._answers = self._answers, []
        regions = [self._regions.get(rank, 0) for rank in ranks]
        if not all(regions):  # no vault gives this memory to others
            return [LoanAnswer(answer.asker, PagesLent(call=answer.asker.call)) for answer in answers]
        numbers = int64s(regions)
        for _, lent in answers:
            self.n_lent += len(lent.places)
        return [
            LoanAnswer(asker, PagesLent(call=lent.call, places=lent.places, regions=numbers if len(lent.places) else int64s()))
            for asker, lent in answers
        ]

    def _end(self, loan: _Loan, *, is_good: bool) -> None:
        """The first copies of a loan are at their places. `is_good`: its asker gets all of it, else nothing."""
        self._loans.remove(loan)
        if self._piece is not None and self._piece.loan is loan:
            self._piece = None
        for index, copy in enumerate(loan.copies):
            if index < loan.n_done:
                self._places.fill(copy.place, copy.content)
            else:
                self._places.give_back(copy.place)
        self._places.unpin(loan.kept)
        if self._ledger is not None:
            self._ledger.release(loan.held)
        places = list[int]()
        for content in loan.contents if is_good else ():
            place = self._places.find(content)
            if place is None:
                break
            places.append(place)
        self._answers.append(LoanAnswer(loan.asker, PagesLent(call=loan.asker.call, places=int32s(places))))


def contents_of(message: PagesWanted) -> list[Content]:
    """The contents that a message names, in order."""
    hashes, tokens, size = message.hashes.tolist(), message.tokens.tobytes(), PAGE_TOKENS * _TOKEN_BYTES
    return [(hashes[index + 1], hashes[index], tokens[index * size : (index + 1) * size]) for index in range(len(hashes) - 1)]
