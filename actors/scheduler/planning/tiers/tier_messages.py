"""The messages of the host tier, from what is to be moved. Pure."""

from __future__ import annotations

from actors.scheduler.planning.page_loads import LoadPiece
from actors.scheduler.planning.pending_stores import Store
from messages.caches.page_moves import MovePages
from messages.wire.arrays import EMPTY_I32, EMPTY_U64, int32s, uint64s


def stores_message(epoch: int, number: int, stores: list[Store]) -> MovePages:
    """Copy pages to places, as moves with this number."""
    return MovePages(
        epoch=epoch,
        number=number,
        stored_pages=int32s([store.page for store in stores]),
        stored_places=int32s([store.place for store in stores]),
        stored_hashes=uint64s([store.content_hash for store in stores]),
        loaded_places=EMPTY_I32,
        loaded_pages=EMPTY_I32,
        loaded_hashes=EMPTY_U64,
    )


def load_message(epoch: int, piece: LoadPiece, places: list[int]) -> MovePages:
    """Copy places, which have the contents of a piece, to its pages."""
    return MovePages(
        epoch=epoch,
        number=piece.number,
        stored_pages=EMPTY_I32,
        stored_places=EMPTY_I32,
        stored_hashes=EMPTY_U64,
        loaded_places=int32s(places),
        loaded_pages=int32s(piece.pages),
        loaded_hashes=uint64s([content[0] for content in piece.contents]),
    )
