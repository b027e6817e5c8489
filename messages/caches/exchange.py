"""Messages that move pages between replicas of one host, through places of shared memory that the lending ranks write.

    scheduler B   PagesWanted  ->  scheduler A
    scheduler A   ExchangePages (stores)  ->  its ranks  ->  PagesExchanged
    scheduler A   PagesLent  ->  scheduler B
    scheduler B   ExchangePages (loads)  ->  its ranks  ->  PagesExchanged

Each place has the hash of its content and a checksum of both. So whatever is lost, late, overwritten or damaged costs a failed
load, and its page is computed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.caches.columns import check_columns
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import EMPTY_I32, EMPTY_I64, EMPTY_U64, Int32s, Int64s, UInt64s, check_arrays
from messages.wire.message import Count, Message

MOST_EXCHANGED = 8192  # pages of one message, in each direction


class PagesWanted(Message, frozen=True):
    """A scheduler asks that of another replica for pages that follow each other in one prompt.

    Page i has the tokens `tokens[16 * i : 16 * i + 16]` and the hash `hashes[i + 1]`; `hashes[0]` is that of the page before
    the first one, or the root of the prompt. The other scheduler compares all of it with what it has.
    """

    call: Count  # chosen by the sender
    hashes: UInt64s
    tokens: Int32s

    def __post_init__(self) -> None:
        check_arrays(self)
        n_pages = len(self.hashes) - 1
        if not 1 <= n_pages <= MOST_EXCHANGED:
            raise ValueError(f"hashes: expected 2 to {MOST_EXCHANGED + 1}, got {len(self.hashes)}")
        if len(self.tokens) != n_pages * PAGE_TOKENS:
            raise ValueError(f"tokens: expected {n_pages * PAGE_TOKENS} for {n_pages} pages, got {len(self.tokens)}")


class PagesLent(Message, frozen=True):
    """The answer to PagesWanted: the first pages lie at these places, in order; none if the replica has not the first page, or
    no room or time for the copies."""

    call: Count
    places: Int32s = EMPTY_I32
    regions: Int64s = EMPTY_I64  # by rank: the number of the memory that the places are in


class ExchangePages(Message, frozen=True):
    """A scheduler asks every rank of its gang to store pages at its own places of the exchange, or to load some from the places
    of another replica. It is a command in the order of plans, as `MovePages` is.

    Page `stored_pages[i]`, whose content has the hash `stored_hashes[i]`, is copied to place `stored_places[i]`. Place
    `loaded_places[j]` of replica `lender` is copied to page `loaded_pages[j]` if its content has the hash `loaded_hashes[j]`.
    """

    epoch: Count  # those of another epoch are dropped
    number: Count  # chosen by the scheduler
    stored_pages: Int32s = EMPTY_I32
    stored_places: Int32s = EMPTY_I32
    stored_hashes: UInt64s = EMPTY_U64
    lender: Count = 0  # replica
    regions: Int64s = EMPTY_I64  # of the lender's memory, by rank
    loaded_places: Int32s = EMPTY_I32
    loaded_pages: Int32s = EMPTY_I32
    loaded_hashes: UInt64s = EMPTY_U64

    def __post_init__(self) -> None:
        check_arrays(self)
        check_columns(
            self,
            MOST_EXCHANGED,
            ("stored_pages", "stored_places", "stored_hashes"),
            ("loaded_pages", "loaded_places", "loaded_hashes"),
        )


class PagesExchanged(Message, frozen=True):
    """A rank has done the moves of one `ExchangePages`."""

    epoch: Count
    number: Count
    failed: Int32s = EMPTY_I32  # indices of loads whose place had another content, or damaged bytes; their pages are undefined
    load_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # time that the loads took
    store_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # time that the stores took
    region: Count = 0  # the number of the rank's own memory of the exchange; 0: it has none that others can map
