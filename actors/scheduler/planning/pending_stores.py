"""Evicted pages that no message has named yet, and that are to be copied to places of the host tier. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple


class Store(NamedTuple):
    """Copy a page, whose content has this hash, to a place."""

    page: int
    place: int
    content_hash: int


class PendingStores:
    """At most one store for each page and for each place."""

    def __init__(self) -> None:
        self._by_place: dict[int, Store] = {}  # in the order of evictions
        self._place_of: dict[int, int] = {}  # by page

    def __len__(self) -> int:
        return len(self._by_place)

    def __contains__(self, page: int) -> bool:
        return page in self._place_of

    def add(self, store: Store) -> None:
        """Copy this page, and nothing else to that place."""
        self._take([store.place])
        assert store.page not in self._place_of, f"page {store.page} has got a new content, and the one before is not stored"
        self._by_place[store.place], self._place_of[store.page] = store, store.place

    def take_except(self, pages: Collection[int], most: int | None = None) -> list[Store]:
        """Take the first `most` stores (None: all) but those of these pages."""
        others = (place for place, store in self._by_place.items() if store.page not in pages)
        return self._take(list(islice(others, most)))

    def take_of(self, pages: list[int], places: list[int]) -> list[Store]:
        """Take the stores of these pages, and those to these places."""
        return self._take([*(self._place_of[page] for page in pages if page in self._place_of), *places])

    def _take(self, places: list[int]) -> list[Store]:
        taken = []
        for place in places:
            if (store := self._by_place.pop(place, None)) is not None:
                del self._place_of[store.page]
                taken.append(store)
        return taken
