"""Messages that move pages between a gang's host tier and its disk tier: places of one page each in a file of every rank.

A disk may take long, so ranks carry these out beside their steps, and answer when all pages have come. Each place on the disk
has the hash of its content and checksums. So a read of something else, or of damaged bytes, fails.

A place also has the tokens of its content, so a scheduler that does not know what is on the disk asks the ranks, from the last
place to the first.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.caches.columns import check_columns
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import EMPTY_I32, EMPTY_U64, Int32s, UInt64s, check_arrays
from messages.wire.message import Count, Message

MOST_DISK_PAGES = 8192  # of one message, in each direction
MOST_FOUND = 256  # pages in one answer


class MoveDiskPages(Message, frozen=True):
    """A scheduler asks every rank of its gang to copy pages to the disk, and others back.

    Place `written_places[i]` of the host tier is copied to place `written_disk_places[i]` of the disk if its content has the
    hash `written_hashes[i]`. Place `read_disk_places[j]` of the disk is copied to place `read_places[j]` of the host tier if
    its content has the hash `read_hashes[j]`. The places of one message are distinct. Before that, the disk forgets all that it
    has if it `is_cleared`; then there are no pages to read.
    """

    epoch: Count  # moves of another epoch are dropped
    number: Count  # chosen by the scheduler
    written_places: Int32s
    written_disk_places: Int32s
    written_hashes: UInt64s
    read_disk_places: Int32s
    read_places: Int32s
    read_hashes: UInt64s
    written_parents: UInt64s = EMPTY_U64  # hashes of the pages before; of all written pages, or of none
    written_tokens: Int32s = EMPTY_I32  # PAGE_TOKENS of each, or none: then no scheduler finds the pages by asking
    is_cleared: bool = False

    def __post_init__(self) -> None:
        check_arrays(self)
        check_columns(
            self,
            MOST_DISK_PAGES,
            ("written_places", "written_disk_places", "written_hashes"),
            ("read_places", "read_disk_places", "read_hashes"),
        )
        n_written = len(self.written_places)
        for name, n in (("written_parents", n_written), ("written_tokens", n_written * PAGE_TOKENS)):
            if len(getattr(self, name)) not in (0, n):
                raise ValueError(f"{name}: expected {n} or none, got {len(getattr(self, name))}")


class DiskPagesMoved(Message, frozen=True):
    """A rank has read the pages of one message, or has failed to, or its disk has forgotten all. There is none for a message
    that only writes."""

    epoch: Count
    number: Count
    failed: Int32s = EMPTY_I32  # indices of pages that have not come; their places of the host tier are as they were or empty
    read_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # time that the reads took


class FindDiskPages(Message, frozen=True):
    """A scheduler asks every rank of its gang what its disk has below the place `before`."""

    epoch: Count
    number: Count  # as of moves
    before: Count


class DiskPagesFound(Message, frozen=True):
    """What the disk of a rank has at the places from `first` on, up to the `before` of the question; there may be more below
    `first`. A rank that cannot read its disk does not answer. The bytes of the pages have not been checked.
    """

    epoch: Count
    number: Count
    first: Count
    places: Int32s = EMPTY_I32
    hashes: UInt64s = EMPTY_U64  # of the contents of these places
    parents: UInt64s = EMPTY_U64  # hashes of the pages before
    tokens: Int32s = EMPTY_I32  # PAGE_TOKENS of each

    def __post_init__(self) -> None:
        check_arrays(self)
        n_pages = len(self.places)
        if n_pages > MOST_FOUND:
            raise ValueError(f"places: expected at most {MOST_FOUND}, got {n_pages}")
        for name, n in (("hashes", n_pages), ("parents", n_pages), ("tokens", n_pages * PAGE_TOKENS)):
            if len(getattr(self, name)) != n:
                raise ValueError(f"{name}: expected {n} for {n_pages} places, got {len(getattr(self, name))}")


DiskMoves = MoveDiskPages | FindDiskPages
