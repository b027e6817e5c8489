"""What a rank does in the exchange of pages: it stores pages at its own places, and loads pages from those of other replicas.

The memory of the places lies in the vault of its replica, under the layout of the pages. So a rank finds only memory whose
bytes mean the same: of the same rank, model, format and settings. Each memory has a number, which the lender's ranks tell with
their answers; a load names it, so memory that a dead rank has left is not read in place of that of the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from gpu_workers.process.page_moves import PageMover
from gpu_workers.vault.exchange_end import DoneExchange, ExchangeEnd, MappedPlaces
from gpu_workers.vault.kept_memory import KeptMemory, find_memory
from messages.caches.exchange import ExchangePages, PagesExchanged
from messages.errors import DescriptorError
from messages.ids import actor_name
from messages.run_dir import vault_path
from messages.wire.arrays import int32s

_MAP_S = 0.2  # for another replica's vault; steps wait meanwhile, once for each memory
_REST_S = 10.0  # before a vault that has not answered is asked again


class RankExchange:
    """Used on the step thread. layout: what decides the meaning of the bytes of this `rank`; own: the memory of its places."""

    def __init__(self, run_dir: Path, rank: int, layout: bytes, own: KeptMemory) -> None:
        self._run_dir, self._rank, self._layout, self._own = run_dir, rank, layout, own
        self._mapped: dict[int, MappedPlaces] = {}  # by replica
        self._rests_until_s: dict[int, float] = {}  # by replica
        self._log = structlog.get_logger()

    def move(
        self, end: ExchangeEnd | None, moves: ExchangePages, mover: PageMover, answer: Callable[[PagesExchanged], None]
    ) -> None:
        """Do these moves, or queue them: then `mover` waits for them. `answer` is called when they are done, on any thread.
        end: the rank's own; None: then all loads fail. Raises: ValueError for an unknown page, or an own place that is
        unknown."""
        done = DoneExchange(list(range(len(moves.loaded_pages))))
        if end is not None:
            lender = self._places_of(moves, end, mover) if len(moves.loaded_pages) else None
            moved = end.move(moves, lender)
            if not isinstance(moved, DoneExchange):
                mover.put(
                    f"exchange {moves.number} of epoch {moves.epoch}", lambda: answer(self._answer_of(moves, moved.wait()))
                )
                return
            done = moved
        answer(self._answer_of(moves, done))

    def _answer_of(self, moves: ExchangePages, done: DoneExchange) -> PagesExchanged:
        return PagesExchanged(
            epoch=moves.epoch,
            number=moves.number,
            failed=int32s(done.failed),
            load_s=done.load_s,
            store_s=done.store_s,
            region=self._own.short_number,
        )

    def _places_of(self, moves: ExchangePages, end: ExchangeEnd, mover: PageMover) -> MappedPlaces | None:
        """The places of the same rank of the lender; None if its vault does not give that memory."""
        replica = int(moves.lender)
        number = int(moves.regions[self._rank]) if self._rank < len(moves.regions) else 0
        known = self._mapped.get(replica)
        if known is not None and known.number == number:
            return known
        if not number or time.monotonic() < self._rests_until_s.get(replica, 0.0):
            return None
        if (before := self._mapped.pop(replica, None)) is not None:
            mover.after_all(before.close)
        try:
            found = self._map(replica, number, end)
        except (DescriptorError, OSError, ValueError) as error:
            self._rests_until_s[replica] = time.monotonic() + _REST_S
            self._log.warning("places of another replica could not be mapped", replica=replica, reason=str(error))
            return None
        if found is not None:
            self._mapped[replica] = found
        return found

    def _map(self, replica: int, number: int, end: ExchangeEnd) -> MappedPlaces | None:
        path, owner = vault_path(self._run_dir, replica), actor_name("worker", replica, self._rank)
        kept = find_memory(path, owner, self._layout, "exchange", timeout_s=_MAP_S)
        if kept is None:
            return None
        descriptor, found = kept
        try:
            return end.map(descriptor, number) if found == number else None
        finally:
            os.close(descriptor)
