"""Messages that move pages between a gang's host tier and its disk tier: places of one page each in a file of every rank.

A disk may take long, so ranks carry these out beside their steps, and answer when all pages have come. Each place on the disk
has the hash of its content and checksums. So a read of something else, or of damaged bytes, fails.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.wire.arrays import EMPTY_I32, Int32s, UInt64s, check_arrays
from messages.wire.message import Count, Message

MOST_DISK_PAGES = 8192  # of one message, in each direction


class MoveDiskPages(Message, frozen=True):
    """A scheduler asks every rank of its gang to copy pages to the disk, and others back.

    Place `written_places[i]` of the host tier is copied to place `written_disk_places[i]` of the disk if its content has the
    hash `written_hashes[i]`. Place `read_disk_places[j]` of the disk is copied to place `read_places[j]` of the host tier if
    its content has the hash `read_hashes[j]`. The places of one message are distinct.
    """

    epoch: Count  # moves of another epoch are dropped
    number: Count  # chosen by the scheduler
    written_places: Int32s
    written_disk_places: Int32s
    written_hashes: UInt64s
    read_disk_places: Int32s
    read_places: Int32s
    read_hashes: UInt64s

    def __post_init__(self) -> None:
        check_arrays(self)
        for first, *others in (
            ("written_places", "written_disk_places", "written_hashes"),
            ("read_places", "read_disk_places", "read_hashes"),
        ):
            n_pages = len(getattr(self, first))
            if n_pages > MOST_DISK_PAGES:
                raise ValueError(f"{first}: expected at most {MOST_DISK_PAGES} pages, got {n_pages}")
            for name in others:
                if len(getattr(self, name)) != n_pages:
                    raise ValueError(f"{name}: expected {n_pages} as in {first}, got {len(getattr(self, name))}")


class DiskPagesMoved(Message, frozen=True):
    """A rank has read the pages of one message, or has failed to. There is none for a message that reads nothing."""

    epoch: Count
    number: Count
    failed: Int32s = EMPTY_I32  # indices of pages that have not come; their places of the host tier are as they were or empty
    read_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # time that the reads took
