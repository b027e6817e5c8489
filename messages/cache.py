"""Prefix facts: schedulers publish what their gangs hold, gateways ask where a prefix lives.

The directory is a hint. A lost update costs a cache hit, never a wrong token: the scheduler's ledger alone decides what is
reused. Updates are numbered per scheduler; a gap or a new directory makes the directory ask for the whole inventory.
"""

from __future__ import annotations

from messages.wire.arrays import EMPTY_U64, UInt64s
from messages.wire.message import Count, Message


class PagesSealed(Message, frozen=True):
    """Pages became reusable at one scheduler. With `snapshot` set, the list replaces everything known of it."""

    number: Count
    hashes: UInt64s
    snapshot: bool = False


class PagesDropped(Message, frozen=True):
    """Pages were overwritten at one scheduler."""

    number: Count
    hashes: UInt64s


class InventoryWanted(Message, frozen=True):
    """The directory missed updates (or is new): send a snapshot."""


class FindPrefix(Message, frozen=True):
    """Which replica holds the longest prefix of this chain of page hashes?"""

    query: Count
    hashes: UInt64s = EMPTY_U64


class PrefixFound(Message, frozen=True):
    """For each replica that holds any of it: how many leading pages. `pages[i]` belongs to `replicas[i]`."""

    query: Count
    replicas: list[int]
    pages: list[int]
