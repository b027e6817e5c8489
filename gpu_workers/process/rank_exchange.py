"""What a rank does in the exchange of pages: it stores pages at its own places, and loads pages from those of other replicas.

The memory of the places lies in the vault of its replica, under the layout of the pages. So a rank finds only memory whose
bytes mean the same: of the same rank, model, format and settings. Each memory has a number, which the lender's ranks tell with
their answers; a load names it, so memory that a dead rank has left is not read in place of that of the next one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import structlog

from gpu_workers.vault.exchange_places import ExchangePlaces, ForeignPlaces, map_places
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
        self._mapped: dict[int, ForeignPlaces] = {}  # by replica
        self._rests_until_s: dict[int, float] = {}  # by replica
        self._log = structlog.get_logger()

    def move(self, places: ExchangePlaces | None, moves: ExchangePages) -> PagesExchanged:
        """Do these moves. places: the rank's own; None: then all loads fail. Raises: ValueError for an unknown page, or an own
        place that is unknown."""
        failed, began_s = list(range(len(moves.loaded_pages))), time.monotonic()
        if places is not None:
            places.store(moves.stored_pages, moves.stored_places, moves.stored_hashes)
        stored_s = time.monotonic()
        if places is not None and failed and (foreign := self._places_of(moves, places.page_bytes)) is not None:
            places.check_pages(moves.loaded_pages)
            failed = foreign.load(places.pages, moves.loaded_places, moves.loaded_pages, moves.loaded_hashes)
        return PagesExchanged(
            epoch=moves.epoch,
            number=moves.number,
            failed=int32s(failed),
            load_s=time.monotonic() - stored_s,
            store_s=stored_s - began_s,
            region=self._own.short_number,
        )

    def _places_of(self, moves: ExchangePages, page_bytes: int) -> ForeignPlaces | None:
        """The places of the same rank of the lender; None if its vault does not give that memory."""
        replica = int(moves.lender)
        number = int(moves.regions[self._rank]) if self._rank < len(moves.regions) else 0
        known = self._mapped.get(replica)
        if known is not None and known.number == number:
            return known
        if not number or time.monotonic() < self._rests_until_s.get(replica, 0.0):
            return None
        self._mapped.pop(replica, None)
        try:
            found = self._map(replica, number, page_bytes)
        except (DescriptorError, OSError, ValueError) as error:
            self._rests_until_s[replica] = time.monotonic() + _REST_S
            self._log.warning("places of another replica could not be mapped", replica=replica, reason=str(error))
            return None
        if found is not None:
            self._mapped[replica] = found
        return found

    def _map(self, replica: int, number: int, page_bytes: int) -> ForeignPlaces | None:
        path, owner = vault_path(self._run_dir, replica), actor_name("worker", replica, self._rank)
        kept = find_memory(path, owner, self._layout, "exchange", timeout_s=_MAP_S)
        if kept is None:
            return None
        descriptor, found = kept
        try:
            return map_places(descriptor, number, page_bytes) if found == number else None
        finally:
            os.close(descriptor)
