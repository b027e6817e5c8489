"""Which descriptors a store keeps: a bounded map from owner and key to a descriptor. No sockets here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from messages.descriptors.packets import MAX_BATCH, Entry
from messages.errors import DescriptorError


@dataclass(frozen=True)
class _Kept:
    descriptor: int
    meta: bytes
    number: int


class DescriptorTable:
    """Keeps at most `max_entries` descriptors, and closes those that are replaced or dropped with `close`."""

    def __init__(self, max_entries: int, close: Callable[[int], None] = os.close) -> None:
        self.max_entries = max_entries
        self._close = close
        self._owners: dict[str, dict[str, _Kept]] = {}  # each inner map in the order of its entries' numbers
        self._number = 0
        self._n_entries = 0

    def __len__(self) -> int:
        return self._n_entries

    @property
    def owners(self) -> list[str]:
        """The owners that have entries."""
        return list(self._owners)

    def put(self, owner: str, key: str, descriptor: int, meta: bytes) -> None:
        """Keep a descriptor, which belongs to the table from now on. Raises: DescriptorError, with nothing kept, when full."""
        kept = self._owners.get(owner, {}).pop(key, None)
        if kept is not None:
            self._n_entries -= 1
            self._close(kept.descriptor)
        elif self._n_entries >= self.max_entries:
            raise DescriptorError(f"entries: expected at most {self.max_entries}, got one more")
        self._number += 1
        self._n_entries += 1
        self._owners.setdefault(owner, {})[key] = _Kept(descriptor, meta, self._number)

    def change(self, owner: str, key: str, meta: bytes) -> None:
        """Give an entry another meta and a new number. Nothing happens without the entry."""
        entries = self._owners.get(owner, {})
        kept = entries.pop(key, None)
        if kept is not None:
            self._number += 1
            entries[key] = _Kept(kept.descriptor, meta, self._number)

    def drop(self, owner: str, key: str = "") -> None:
        """Close one entry, or all of an owner."""
        entries = self._owners.get(owner, {})
        for name in [key] if key else list(entries):
            kept = entries.pop(name, None)
            if kept is not None:
                self._n_entries -= 1
                self._close(kept.descriptor)
        if not entries:
            self._owners.pop(owner, None)

    def find(self, owner: str, key: str = "", after: int = 0) -> tuple[list[Entry], list[int], bool]:
        """(entries, their descriptors, True if there are no more): of one key, or of an owner, with numbers above `after`.

        The descriptors stay the table's own."""
        entries = self._owners.get(owner, {})
        names = [name for name in ([key] if key else entries) if name in entries and entries[name].number > after]
        chosen = names[:MAX_BATCH]
        found = [Entry(name, entries[name].meta, entries[name].number) for name in chosen]
        return found, [entries[name].descriptor for name in chosen], len(names) <= MAX_BATCH

    def clear(self) -> None:
        """Close every descriptor."""
        for owner in list(self._owners):
            self.drop(owner)
