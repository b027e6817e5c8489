"""The mail of the host tier and the disk tier: the scheduler's side. `HostTier` and `DiskTier` decide."""

from __future__ import annotations

from actors.actor import Actor
from actors.scheduler.gang.gang_seats import GangSeats
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.plan_builder import PlannedStep
from messages.caches.disk_moves import DiskPagesFound, DiskPagesMoved
from messages.caches.page_moves import PagesMoved


class TierMoves:
    """Sends moves to the ranks of one gang. `actor` sends and logs."""

    def __init__(self, actor: Actor, gang: GangView, seats: GangSeats) -> None:
        self._actor, self._gang, self._seats = actor, gang, seats

    def send(self, planned: PlannedStep | None) -> None:
        """Send what is to be moved before this plan; None: no plan can be made now."""
        for moves in self._gang.tier.take_moves(planned):
            self._actor.mailbox.send_all(self._seats.ranks, moves)

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

    def give_up_late(self) -> None:
        """Let sequences compute what has not come in time."""
        if n_late := self._gang.tier.give_up_late():
            self._actor.log.error("the gang has not answered loads from the host tier or the disk", loads=n_late)

    def disk_found(self, rank: str, answer: DiskPagesFound) -> None:
        """A rank says what its disk has."""
        contents = self._gang.tier.disk.contents
        was_asking = contents.is_asking
        contents.found(rank, answer)
        if was_asking and not contents.is_asking:
            self._actor.log.info("the pages on the disk are known", pages=len(contents.ledger))
