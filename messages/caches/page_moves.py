"""Messages that move pages between a gang's KV memory and its host tier: places of ordinary memory, one page each. Two more
give the memory of pages and of places back to the system.

Moves are commands in the order of plans: what a plan before them writes is there, and what a plan after them reads is loaded.
Each place has the hash of its content and a checksum of its bytes. So a load of something else, or of damaged bytes, fails.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.caches.columns import check_columns
from messages.wire.arrays import EMPTY_I32, Int32s, UInt64s, check_arrays
from messages.wire.message import Count, Message

MOST_MOVED = 8192  # pages of one message, in each direction


class MovePages(Message, frozen=True):
    """A scheduler asks every rank of its gang to store pages, and then to load some.

    Page `stored_pages[i]`, whose content has the hash `stored_hashes[i]`, is copied to place `stored_places[i]`. Then place
    `loaded_places[j]` is copied to page `loaded_pages[j]` if its content has the hash `loaded_hashes[j]`. The places of one
    message are distinct, and so are the pages that are loaded.
    """

    epoch: Count  # moves of another epoch are dropped
    number: Count  # chosen by the scheduler
    stored_pages: Int32s
    stored_places: Int32s
    stored_hashes: UInt64s
    loaded_places: Int32s
    loaded_pages: Int32s
    loaded_hashes: UInt64s

    def __post_init__(self) -> None:
        check_arrays(self)
        check_columns(
            self,
            MOST_MOVED,
            ("stored_pages", "stored_places", "stored_hashes"),
            ("loaded_pages", "loaded_places", "loaded_hashes"),
        )


class PagesMoved(Message, frozen=True):
    """A rank has done the moves of one message."""

    epoch: Count
    number: Count
    failed: Int32s = EMPTY_I32  # indices of loads whose place had another content, or damaged bytes; their pages are undefined
    load_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # time that the loads took
    is_early: bool = False  # the places cannot be used yet: nothing was stored, and loads failed that may succeed later
    unstored: Int32s = EMPTY_I32  # places for which there was no memory since the last answer: they are empty


class ReturnPages(Message, frozen=True):
    """A scheduler does not need these pages for now: every rank of its gang gives their memory back to the system.

    A later plan may use them again without a message: a page that comes back reads as zeros. In the order of plans and moves.
    """

    epoch: Count  # those of another epoch are dropped
    pages: Int32s  # distinct; nobody holds them and their contents are not known any more


class ReturnPlaces(Message, frozen=True):
    """A scheduler does not need these places of the host tier for now: every rank of its gang gives their memory back to the
    system.

    They are empty then. A rank takes memory again for a place at which it is to store a page; if it gets none, it stores
    nothing there and says so in `PagesMoved`. In the order of plans and moves.
    """

    epoch: Count  # those of another epoch are dropped
    places: Int32s  # distinct
