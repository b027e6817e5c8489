"""Messages of the cache directory: schedulers publish which pages they hold, gateways ask which replica holds a prefix.

The directory gives hints. A lost update costs a cache hit and never a wrong token, because only the scheduler's ledger decides
what is reused. Each scheduler numbers its updates. After a gap in the numbers, or when the directory itself is new, it asks
for a snapshot.

A reset goes from a gateway to every scheduler. The directory learns of it as of any other pages that a scheduler drops.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.wire.arrays import EMPTY_I32, EMPTY_U64, Int32s, UInt64s
from messages.wire.message import CallerId, Count, Message

SentSeconds = Annotated[float, msgspec.Meta(ge=0.0)]  # by the monotonic clock of the sender's host; 0: not known


class PagesSealed(Message, frozen=True):
    """Pages have become reusable at one scheduler. With `snapshot`, these are all of its reusable pages on the device, and none
    of its host tier is known; with `in_tier`, they lie in the host tier."""

    number: Count
    hashes: UInt64s
    snapshot: bool = False
    sent_s: SentSeconds = 0.0
    in_tier: bool = False


class PagesDropped(Message, frozen=True):
    """Pages have been overwritten at one scheduler; with `in_tier`, in its host tier."""

    number: Count
    hashes: UInt64s
    sent_s: SentSeconds = 0.0
    in_tier: bool = False


class InventoryWanted(Message, frozen=True):
    """The directory has missed updates, or is new, and asks for a snapshot."""


class FindPrefix(Message, frozen=True):
    """A gateway asks how much of this chain of page hashes each replica holds."""

    query: Count
    hashes: UInt64s = EMPTY_U64


class PrefixFound(Message, frozen=True):
    """The answer: replica `replicas[i]` holds the first `pages[i]` pages. Replicas that hold none are left out. Pages that
    lie in a host tier alone have to come back first, so they count less."""

    query: Count
    replicas: list[int]
    pages: list[int]


class ForgetPages(Message, frozen=True):
    """An operator wants cached pages forgotten: those that meet all conditions. It is sent again until it is answered.

    `scope`: `Terms.cache_scope` of the requests that cached them; None: any. `tokens`: with which their prompts begin.
    `older_than_s`: they were computed longer ago.
    """

    call: Count
    scope: CallerId | None = None
    tokens: Int32s = EMPTY_I32
    older_than_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0


class PagesForgotten(Message, frozen=True):
    """The answer to `ForgetPages`: so many pages were forgotten. Those that sequences hold stay until these end."""

    call: Count
    pages: Count
