"""The exchange of pages of one gang with those of other replicas: what it lends, what it borrows, and its commands. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable

from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.tier_loads import TierLoads
from actors.scheduler.planning.exchange.borrowing import Borrower, Borrowing
from actors.scheduler.planning.exchange.lending import Asker, Lending, LoanAnswer
from actors.scheduler.planning.step_cost import StepCost
from actors.scheduler.sequences.sequence import Sequence
from messages.caches.exchange import ExchangePages, PagesExchanged, PagesLent, PagesWanted
from messages.wire.arrays import int32s, int64s, uint64s


class PageExchange:
    """Of one gang after the other. It is off while ranks have no places. n_running, is_up, now_s: as for `Borrower`."""

    def __init__(
        self,
        n_ranks: int,
        choice: TierLoads,
        cost: StepCost,
        n_running: Callable[[], int],
        now_s: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._epoch = self._number = 0
        self.n_places = 0  # of each rank
        self.lending = Lending(n_ranks, lambda: cost.decode_s(n_running()), now_s)
        self.borrower = Borrower(n_ranks, choice, cost, n_running, now_s)

    @property
    def held(self) -> list[list[int]]:
        """The pages that moves hold."""
        return [*self.lending.held, *self.borrower.held] if self.n_places else []

    def begin_epoch(self, epoch: int, ledger: ForgettingLedger, n_places: int) -> None:
        """Plans of this epoch follow. n_places: of each rank."""
        self._epoch, self.n_places = epoch, n_places
        if n_places:
            self.lending.begin_epoch(ledger, n_places)
            self.borrower.begin_epoch(ledger)

    def end_epoch(self) -> None:
        """Commands that have not been answered may never be done."""
        self.lending.end_epoch()
        self.borrower.end_epoch()

    def clear(self) -> None:
        """Forget what lies at places, and what is on its way."""
        self.lending.clear()
        self.borrower.clear()

    def must_wait(self, sequence: Sequence, shared: list[int], n_pages: int) -> bool:
        """As `HostTier.must_wait`, for pages of other replicas."""
        return self.n_places > 0 and self.borrower.must_wait(sequence, shared, n_pages)

    def wanted(self, asker: Asker, message: PagesWanted) -> None:
        """Another scheduler asks for pages."""
        self.lending.wanted(asker, message)

    def lent(self, scheduler: str, answer: PagesLent) -> None:
        """Another scheduler has answered."""
        self.borrower.lent(scheduler, answer)

    def exchanged(self, rank: str, answer: PagesExchanged) -> None:
        """A rank has done one command."""
        if answer.epoch != self._epoch:
            return
        self.lending.copied(rank, answer)
        self.borrower.loaded(rank, answer)

    def take_moves(self, is_stored: Callable[[int], bool]) -> list[ExchangePages]:
        """What every rank is to do now. is_stored: True for a page whose present content must be stored before it is
        overwritten."""
        if not self.n_places:
            return []
        moves = []
        if (copied := self.lending.next_piece(self._number + 1)) is not None:
            self._number += 1
            moves.append(
                ExchangePages(
                    epoch=self._epoch,
                    number=self._number,
                    stored_pages=int32s([copy.page for copy in copied.copies]),
                    stored_places=int32s([copy.place for copy in copied.copies]),
                    stored_hashes=uint64s([copy.content[0] for copy in copied.copies]),
                )
            )
        if (loaded := self.borrower.next_piece(self._number + 1, is_stored)) is not None:
            self._number += 1
            one = loaded.load
            assert isinstance(one, Borrowing)
            moves.append(
                ExchangePages(
                    epoch=self._epoch,
                    number=self._number,
                    lender=one.lender,
                    regions=int64s(one.regions),
                    loaded_places=int32s(one.places[loaded.first : loaded.end]),
                    loaded_pages=int32s(loaded.pages),
                    loaded_hashes=uint64s([content[0] for content in loaded.contents]),
                )
            )
        return moves

    def take_mail(self, ranks: list[str]) -> tuple[list[tuple[str, PagesWanted]], list[LoanAnswer]]:
        """(questions to other schedulers, answers to them). ranks: of the gang, in order."""
        return self.borrower.take_questions(), self.lending.take_answers(ranks)

    def give_up_late(self) -> int:
        """End what is overdue: its sequences compute. Returns how many."""
        return self.lending.give_up_late() + self.borrower.give_up_late()
