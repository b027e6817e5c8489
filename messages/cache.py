"""Messages of the cache directory: schedulers publish which pages they hold, gateways ask which replica holds a prefix.

The directory gives hints. A lost update costs a cache hit and never a wrong token, because only the scheduler's ledger decides
what is reused. Each scheduler numbers its updates. After a gap in the numbers, or when the directory itself is new, it asks
for a snapshot.
"""

from __future__ import annotations

from messages.wire.arrays import EMPTY_U64, UInt64s
from messages.wire.message import Count, Message


class PagesSealed(Message, frozen=True):
    """Pages have become reusable at one scheduler. With `snapshot`, these are all of its reusable pages."""

    number: Count
    hashes: UInt64s
    snapshot: bool = False


class PagesDropped(Message, frozen=True):
    """Pages have been overwritten at one scheduler."""

    number: Count
    hashes: UInt64s


class InventoryWanted(Message, frozen=True):
    """The directory has missed updates, or is new, and asks for a snapshot."""


class FindPrefix(Message, frozen=True):
    """A gateway asks how much of this chain of page hashes each replica holds."""

    query: Count
    hashes: UInt64s = EMPTY_U64


class PrefixFound(Message, frozen=True):
    """The answer: replica `replicas[i]` holds the first `pages[i]` pages. Replicas that hold none are left out."""

    query: Count
    replicas: list[int]
    pages: list[int]
