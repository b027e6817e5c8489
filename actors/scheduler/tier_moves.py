"""The mail about pages that change their place: the host tier, the disk tier, the exchange with other replicas, and pages and
places whose memory goes back to the system.

The scheduler's side; `HostTier`, `DiskTier`, `SizedLedger` and `SizedHostLedger` decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.actor import Actor, Handler
from actors.pages.sizing.sized_ledger import SizedLedger
from actors.scheduler.gang.gang_seats import GangSeats
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.exchange.lending import Asker
from actors.scheduler.planning.plan_builder import PlannedStep
from messages.caches.disk_moves import DiskPagesFound, DiskPagesMoved
from messages.caches.exchange import PagesExchanged, PagesLent, PagesWanted
from messages.caches.page_moves import MOST_MOVED, PagesMoved, ReturnPages, ReturnPlaces
from messages.errors import MailboxFull
from messages.transport.mailbox import Delivery
from messages.wire.arrays import int32s
from messages.wire.message import Message


class TierMoves:
    """Sends moves to the ranks of one gang, and asks and answers other schedulers. `actor` sends and logs. on_ended: is called
    when loads have ended without mail, on whose outcome results wait."""

    def __init__(self, actor: Actor, gang: GangView, seats: GangSeats, on_ended: Callable[[], None]) -> None:
        self._actor, self._gang, self._seats, self._on_ended = actor, gang, seats, on_ended
        self.exchange = gang.tier.exchange
        self.exchange.borrower.is_up = lambda name: name in actor.child.peers
        if actor.child.spawn_spec.incarnation > 1:
            self.exchange.borrower.rest()  # the one before may have carried out a reset that others have not yet

    def send(self, planned: PlannedStep | None) -> bool:
        """Send what is to be moved before this plan; None: no plan can be made now. Returns True if one may be possible
        now, for a sequence whose pages are all on their way."""
        for moves in self._gang.tier.take_moves(planned):
            self._actor.mailbox.send_all(self._seats.ranks, moves)
        if self.exchange.n_places:
            self._send_mail()
        return self._gang.tier.take_sent()

    def catch_up(self) -> None:
        """Do what nobody waits for, when the tokens have been sent."""
        self._gang.tier.settle()
        for moves in self._gang.tier.take_stores_ahead():
            self._actor.mailbox.send_all(self._seats.ranks, moves)

    def _send_mail(self) -> None:
        questions, answers = self.exchange.take_mail(self._seats.ranks)
        for name, question in questions:
            self._send(name, question)
        for asker, answer in answers:
            peer = self._actor.child.peers.get(asker.scheduler)
            if peer is not None and peer.incarnation == asker.incarnation:
                self._send(asker.scheduler, answer)

    def _send(self, name: str, message: Message) -> None:
        """Send a message that may be lost: whoever waits for it has a deadline."""
        try:
            self._actor.send(name, message)
        except MailboxFull:
            self._actor.log.warning("an optional message could not be sent", peer=name, kind=type(message).__name__)

    def begin(self) -> None:
        """An epoch begins: tell the ranks which memory is not needed. Those before them may have died before they knew."""
        if isinstance(ledger := self._gang.ledger, SizedLedger):
            self._return_pages(ledger.returned)
        self._return_places(self._gang.tier.sizing.returned)

    def tick(self) -> None:
        """To be called about once a second: give up what is late, and let ranks return what is not needed."""
        self._give_up_late()
        if not self._gang.is_alive:
            return
        if isinstance(ledger := self._gang.ledger, SizedLedger):
            self._return_pages(ledger.give_back(self._gang.tier.is_to_be_stored))
            self.send(None)  # what was evicted is stored now, and its pages go back next time
        self._return_places(self._gang.tier.sizing.give_back())

    def _return_pages(self, pages: list[int]) -> None:
        epoch = self._gang.tracker.epoch
        for at in range(0, len(pages), MOST_MOVED):
            message = ReturnPages(epoch=epoch, pages=int32s(pages[at : at + MOST_MOVED]))
            self._actor.mailbox.send_all(self._seats.ranks, message)

    def _return_places(self, places: list[int]) -> None:
        epoch = self._gang.tracker.epoch
        for at in range(0, len(places), MOST_MOVED):
            message = ReturnPlaces(epoch=epoch, places=int32s(places[at : at + MOST_MOVED]))
            self._actor.mailbox.send_all(self._seats.ranks, message)

    def moved(self, rank: str, answer: PagesMoved) -> None:
        """A rank has done the moves of one message."""
        if len(answer.failed) and not answer.is_early:
            self._actor.log.warning("pages of the host tier are missing or damaged", rank=rank, pages=len(answer.failed))
        sizing, is_current = self._gang.tier.sizing, answer.epoch == self._gang.tracker.epoch
        if is_current and len(answer.unstored) and sizing.lacks_memory(answer.unstored.tolist()):
            self._actor.log.warning("no memory for a larger host tier: it stays as it is", rank=rank)
        self._gang.tier.moved(rank, answer)

    def disk_moved(self, rank: str, answer: DiskPagesMoved) -> None:
        """A rank has read the pages of one message from its disk."""
        if len(answer.failed):
            self._actor.log.warning("pages of the disk tier have not come", rank=rank, pages=len(answer.failed))
        self._gang.tier.disk.moved(rank, answer)

    def exchanged(self, rank: str, answer: PagesExchanged) -> None:
        """A rank has stored pages for other replicas, or loaded some of theirs."""
        if len(answer.failed):
            self._actor.log.warning("pages of another replica have not come", rank=rank, pages=len(answer.failed))
        self.exchange.exchanged(rank, answer)

    def wanted(self, delivery: Delivery, message: PagesWanted) -> None:
        """The scheduler of another replica wants pages."""
        self.exchange.wanted(Asker(delivery.sender, delivery.sender_incarnation, int(message.call)), message)

    def peer_down(self, name: str) -> None:
        """An actor has died, which may be a scheduler that was asked for pages."""
        self.exchange.borrower.lender_down(name)

    def _give_up_late(self) -> None:
        """Let sequences compute what has not come in time."""
        if n_late := self._gang.tier.give_up_late():
            self._actor.log.error("the gang has not answered loads from the host tier or the disk", loads=n_late)
        if n_late := self.exchange.give_up_late():
            self._actor.log.warning("moves of pages between replicas have not come in time", moves=n_late)
        self._on_ended()

    def disk_found(self, rank: str, answer: DiskPagesFound) -> None:
        """A rank says what its disk has."""
        contents = self._gang.tier.disk.contents
        was_asking = contents.is_asking
        contents.found(rank, answer)
        if was_asking and not contents.is_asking:
            self._actor.log.info("the pages on the disk are known", pages=len(contents.ledger))


def handlers(moves: Callable[[], TierMoves]) -> Mapping[type[Message], Handler]:
    """For the mail from ranks and from other schedulers. moves: called for each message."""
    return {
        PagesMoved: lambda delivery, message: moves().moved(delivery.sender, message),
        DiskPagesMoved: lambda delivery, message: moves().disk_moved(delivery.sender, message),
        DiskPagesFound: lambda delivery, message: moves().disk_found(delivery.sender, message),
        PagesWanted: lambda delivery, message: moves().wanted(delivery, message),
        PagesLent: lambda delivery, message: moves().exchange.lent(delivery.sender, message),
        PagesExchanged: lambda delivery, message: moves().exchanged(delivery.sender, message),
    }
