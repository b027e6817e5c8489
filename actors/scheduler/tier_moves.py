"""The mail about pages that change their place: the host tier, the disk tier, and pages whose memory goes back to the system.

The scheduler's side; `HostTier` and `SizedLedger` decide."""

from __future__ import annotations

from actors.actor import Actor
from actors.pages.sizing.sized_ledger import SizedLedger
from actors.scheduler.gang.gang_seats import GangSeats
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.plan_builder import PlannedStep
from messages.caches.disk_moves import DiskPagesMoved
from messages.caches.page_moves import MOST_MOVED, PagesMoved, ReturnPages
from messages.wire.arrays import int32s


class TierMoves:
    """Sends moves to the ranks of one gang. `actor` sends and logs."""

    def __init__(self, actor: Actor, gang: GangView, seats: GangSeats) -> None:
        self._actor, self._gang, self._seats = actor, gang, seats

    def send(self, planned: PlannedStep | None) -> None:
        """Send what is to be moved before this plan; None: no plan can be made now."""
        for moves in self._gang.tier.take_moves(planned):
            self._actor.mailbox.send_all(self._seats.ranks, moves)

    def begin(self) -> None:
        """An epoch begins: tell the ranks which pages are not needed. Those before them may have died before they knew."""
        if isinstance(ledger := self._gang.ledger, SizedLedger):
            self._return(ledger.returned)

    def tick(self) -> None:
        """To be called about once a second: give up what is late, and let ranks return what is not needed."""
        self._give_up_late()
        if self._gang.is_alive and isinstance(ledger := self._gang.ledger, SizedLedger):
            self._return(ledger.give_back(self._gang.tier.is_to_be_stored))
            self.send(None)  # what was evicted is stored now, and its pages go back next time

    def _return(self, pages: list[int]) -> None:
        epoch = self._gang.tracker.epoch
        for at in range(0, len(pages), MOST_MOVED):
            message = ReturnPages(epoch=epoch, pages=int32s(pages[at : at + MOST_MOVED]))
            self._actor.mailbox.send_all(self._seats.ranks, message)

    def moved(self, rank: str, answer: PagesMoved) -> None:
        """A rank has done the moves of one message."""
        if len(answer.failed):
            self._actor.log.warning("pages of the host tier are missing or damaged", rank=rank, pages=len(answer.failed))
        self._gang.tier.moved(rank, answer)

    def disk_moved(self, rank: str, answer: DiskPagesMoved) -> None:
        """A rank has read the pages of one message from its disk."""
        if len(answer.failed):
            self._actor.log.warning("pages of the disk tier have not come", rank=rank, pages=len(answer.failed))
        self._gang.tier.disk.moved(rank, answer)

    def _give_up_late(self) -> None:
        """Let sequences compute what has not come in time."""
        if n_late := self._gang.tier.give_up_late():
            self._actor.log.error("the gang has not answered loads from the host tier or the disk", loads=n_late)
