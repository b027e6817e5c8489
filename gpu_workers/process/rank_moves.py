"""Begins the page moves that a scheduler asks a rank for: to and from the host tier, the disk, or another replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_workers.engine import Engine, Launched
from gpu_workers.process.page_moves import PageMover
from gpu_workers.process.rank_disk import RankDisk
from gpu_workers.process.rank_exchange import RankExchange
from messages.caches.disk_moves import DiskMoves
from messages.caches.exchange import ExchangePages
from messages.caches.moves import Moved, Moves
from messages.caches.page_moves import ReturnPages, ReturnPlaces


@dataclass(frozen=True)
class RankMoves:
    """Who moves what. None: this rank has no disk, or no exchange."""

    mover: PageMover
    disk: RankDisk | None
    exchange: RankExchange | None

    def begin(self, engine: Engine[Launched], moves: Moves, is_intact: bool, moved: Callable[[Moved], None]) -> None:
        """Begin these moves; `moved` is called with what has moved. Called on the step thread.

        `is_intact`: all plans before have run. What one that did not run would have written must not get the name of its
        content. Pages between the host tier and the disk have names already, and returned pages and places have no content.
        """
        if isinstance(moves, ReturnPages):
            engine.return_pages(moves.pages)
        elif isinstance(moves, ReturnPlaces):
            if engine.host_tier is not None:
                engine.host_tier.return_places(moves.places)
        elif isinstance(moves, DiskMoves):
            if self.disk is not None:
                self.disk.move(engine, moves, moved)
        elif not is_intact:
            pass
        elif isinstance(moves, ExchangePages):
            if self.exchange is not None:
                self.exchange.move(engine.exchange, moves, self.mover, moved)
        else:
            self.mover.move(engine.host_tier, moves, moved)
