"""Pages that this replica gets from another one: when it asks, and how they come to the device. Pure.

A sequence that is to enter, and of whose prompt another replica has more, waits while a *borrowing* brings pages, if that is
expected to take less time than to compute them:

    PagesWanted -> (the other replica copies) -> PagesLent -> pages allocated, loads in pieces -> ordinary cached pages

It waits for one borrowing in each stay, and each borrowing has a deadline, so nothing waits for ever. A borrowing holds the
pages before its own, which it continues; its own are allocated when they have been lent, and have no content until every rank
has answered.

A reset of caches reaches replicas one after the other. So nothing is borrowed for `_QUIET_S` after one, and what is on its way
is dropped: the other replica may still have what was to be forgotten. A scheduler that has replaced another one does not know
of such a reset, and is quiet first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.tier_loads import TierLoads
from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.planning.page_loads import LoadPiece, PageLoad, PageLoads
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.sequences.sequence import Sequence
from messages.caches.exchange import MOST_EXCHANGED, PagesExchanged, PagesLent, PagesWanted
from messages.ids import actor_name
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import uint64s

_MOST_OPEN = 4
_ANSWER_LIMIT_S = 2.0  # for the other replica
_LIMIT_S = 10.0  # for all of it
_REST_S = 10.0  # before a replica is asked again that has not answered
_QUIET_S = 30.0  # more than a gateway waits for the schedulers when it lets caches forget


@dataclass
class BorrowCounts:
    """What was moved since the scheduler began, in pages."""

    moved: int = 0
    failed: int = 0
    moved_s: float = 0.0  # from the question until they could be used
    saved_s: float = 0.0  # that computing the moved pages would have taken, without that time


@dataclass(eq=False)
class Borrowing(PageLoad):
    """Pages that another replica is asked for. `pages` is empty until they are lent."""

    number: int = 0
    lender: int = 0  # replica
    began_s: float = 0.0
    is_lent: bool = False
    places: list[int] = field(default_factory=list)
    regions: list[int] = field(default_factory=list)  # of the lender's memory, by rank


class Borrower:
    """The borrowings of one gang after the other. n_running: sequences that run now, each of which may need a page. now_s: the
    monotonic clock. `is_up`: True for the name of a scheduler that can be asked."""

    def __init__(
        self,
        n_ranks: int,
        choice: TierLoads,
        cost: StepCost,
        n_running: Callable[[], int],
        now_s: Callable[[], float],
    ) -> None:
        self._choice, self._cost, self._n_running, self._now_s = choice, cost, n_running, now_s
        self.is_up: Callable[[str], bool] = lambda name: False
        self._ledger: ForgettingLedger | None = None  # of the present epoch
        self._piece_cost, self._whole_cost = LoadCost(lambda: cost.decode_s(n_running())), LoadCost()
        self._loads = PageLoads(n_ranks, self._piece_cost, now_s)
        self._open: dict[int, Borrowing] = {}  # by number
        self._waiting: dict[int, Borrowing] = {}  # by number of the sequence that waits
        self._arriving: dict[int, Borrowing] = {}  # by hash of a content
        self._rests_until_s: dict[int, float] = {}  # by replica
        self._quiet_until_s = 0.0
        self._questions: list[tuple[str, PagesWanted]] = []
        self._n_asked = 0
        self.counts = BorrowCounts()

    @property
    def held(self) -> list[list[int]]:
        """The pages that borrowings hold."""
        return [[*one.before, *one.pages] for one in self._open.values()]

    def begin_epoch(self, ledger: ForgettingLedger) -> None:
        """Plans of an epoch follow."""
        self._ledger = ledger

    def end_epoch(self) -> None:
        """What has come is kept, the rest is dropped."""
        self._end_all(self._open.values())
        self._ledger = None

    def clear(self) -> None:
        """The memory has no content any more, or what has come must not be used."""
        for one in self._open.values():
            one.n_good = 0
        self._end_all(self._open.values())

    def rest(self) -> None:
        """Other replicas may have what an operator wants forgotten: borrow nothing for a while."""
        self._quiet_until_s = self._now_s() + _QUIET_S

    # -- what the planner asks ----------------------------------------------------------------------------------

    def must_wait(self, sequence: Sequence, shared: list[int], n_pages: int) -> bool:
        """As `HostTier.must_wait`. May ask another replica."""
        if sequence.number in self._waiting:
            return True
        if sequence.borrowed_stay == sequence.stay:
            return False
        one = self._arriving.get(sequence.page_content(len(shared))[0]) or self._begin(sequence, shared, n_pages)
        if one is None:
            return False
        sequence.borrowed_stay = sequence.stay
        self._waiting[sequence.number] = one
        return True

    def _begin(self, sequence: Sequence, shared: list[int], n_pages: int) -> Borrowing | None:
        holder, ledger, now_s = sequence.holder, self._ledger, self._now_s()
        if holder is None or ledger is None or len(self._open) >= _MOST_OPEN or now_s < self._quiet_until_s:
            return None
        lender, first = int(holder.replica), len(shared)
        n_wanted = min(int(holder.pages), n_pages, first + MOST_EXCHANGED) - first
        name = actor_name("scheduler", lender)
        if n_wanted < 1 or now_s < self._rests_until_s.get(lender, 0.0) or not self.is_up(name):
            return None
        if not self._is_faster(first, n_wanted) or n_wanted + self._n_running() > ledger.n_available - first:
            return None
        contents = [sequence.page_content(index) for index in range(first, first + n_wanted)]
        ledger.acquire(shared)
        self._n_asked += 1
        one = Borrowing(contents, [], list(shared), number=self._n_asked, lender=lender, began_s=now_s)
        self._open[one.number] = one
        self._arriving.update(dict.fromkeys((content[0] for content in contents), one))
        self._questions.append((name, _question(one)))
        return one

    def _is_faster(self, n_before: int, n_pages: int) -> bool:
        if self._choice is TierLoads.ALWAYS or not self._cost.is_known:
            return True
        return self._whole_cost.is_below(n_pages, self._cost.prompt_s(n_before * PAGE_TOKENS, n_pages * PAGE_TOKENS))

    # -- what comes -----------------------------------------------------------------------------------------------

    def lent(self, scheduler: str, answer: PagesLent) -> None:
        """Another scheduler has answered."""
        one, ledger = self._open.get(int(answer.call)), self._ledger
        if one is None or one.is_lent or ledger is None or scheduler != actor_name("scheduler", one.lender):
            return
        one.is_lent = True
        n_pages = min(len(answer.places), len(one.contents))
        if not n_pages or n_pages + self._n_running() > ledger.n_available:
            self._end(one)
            return
        one.contents = one.contents[:n_pages]
        one.places, one.regions = answer.places.tolist()[:n_pages], answer.regions.tolist()
        one.pages = [page for page in (ledger.allocate() for _ in one.contents) if page is not None]
        assert len(one.pages) == n_pages, "the available pages were counted"
        self._loads.begin(one)

    def next_piece(self, number: int, is_stored: Callable[[int], bool]) -> LoadPiece | None:
        """As `PageLoads.next_piece`."""
        return self._loads.next_piece(number, is_stored)

    def loaded(self, rank: str, answer: PagesExchanged) -> None:
        """A rank has done the loads of one message, or something else."""
        piece = self._loads.moved(rank, answer)
        if piece is None:
            return
        one, now_s = piece.load, self._now_s()
        assert isinstance(one, Borrowing)
        self.counts.moved += one.n_good - piece.first
        self.counts.failed += len(piece.failed)
        self._piece_cost.learn(piece.end - piece.first, piece.took_s)
        if not piece.failed and one.n_good < len(one.pages):
            return
        self.counts.moved_s += now_s - one.began_s
        if one.n_good:
            took_s, prompt_s = now_s - one.began_s, self._cost.pages_s(len(one.before), one.n_good)
            self._whole_cost.learn(one.n_good, took_s)
            self.counts.saved_s += prompt_s - took_s if prompt_s else 0.0
        else:
            self._rests_until_s[one.lender] = now_s + _REST_S
        self._end(one)

    def take_questions(self) -> list[tuple[str, PagesWanted]]:
        """What is to be asked now: the name of a scheduler, the message."""
        questions, self._questions = self._questions, []
        return questions

    def lender_down(self, scheduler: str) -> None:
        """A scheduler has died: it does not answer any more. What it has lent can still be read."""
        self._end_all(
            one for one in self._open.values() if not one.is_lent and actor_name("scheduler", one.lender) == scheduler
        )

    def give_up_late(self) -> int:
        """End what is overdue: its sequences compute. Returns how many."""
        now_s = self._now_s()
        late = [one for one in self._open.values() if now_s - one.began_s >= (_LIMIT_S if one.is_lent else _ANSWER_LIMIT_S)]
        if self._loads.is_late:
            late = list(self._open.values())
        for one in late:
            self._rests_until_s[one.lender] = now_s + _REST_S
        self.counts.failed += sum(len(one.contents) - one.n_good for one in late)
        return self._end_all(late)

    def _end_all(self, some: Iterable[Borrowing]) -> int:
        ended = list(some)
        for one in ended:
            self._end(one)
        return len(ended)

    def _end(self, one: Borrowing) -> None:
        """The first pages of a borrowing have their content, the others have none."""
        del self._open[one.number]
        self._arriving = {hashed: other for hashed, other in self._arriving.items() if other is not one}
        self._waiting = {number: other for number, other in self._waiting.items() if other is not one}
        if one.pages:
            self._loads.end(one)
        if self._ledger is not None:
            one.give_to(self._ledger)


def _question(one: Borrowing) -> PagesWanted:
    hashes = [one.contents[0][1], *(content[0] for content in one.contents)]
    tokens = np.frombuffer(b"".join(content[2] for content in one.contents), "<i4")
    return PagesWanted(call=one.number, hashes=uint64s(hashes), tokens=tokens)
