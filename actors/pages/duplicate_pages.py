"""Held pages whose content is found through another page with the same content. Pure.

Two sequences that compute the same content at the same time fill a page each. Look-ups find one of the two, the *known* page;
the other is its *duplicate*. Pages after a duplicate may be known all the same. They can be found only while every page before
them can, so when a known page is evicted, its duplicate takes its place.
"""

from __future__ import annotations

from typing import NamedTuple


class DuplicatePage(NamedTuple):
    """A page, and the number of the plan that computes its content."""

    plan: int
    page: int


class DuplicatePages:
    """All duplicates of one ledger. Constant time per page."""

    def __init__(self) -> None:
        self.by_hash: dict[int, list[DuplicatePage]] = {}  # by content hash
        self._hash_of: dict[int, int] = {}  # by page

    def add(self, page: int, content_hash: int, plan: int) -> None:
        """A page that is held gets the content of a known page."""
        self._hash_of[page] = content_hash
        self.by_hash.setdefault(content_hash, []).append(DuplicatePage(plan, page))

    def remove(self, page: int) -> int | None:
        """A page has lost its last holder; returns its content hash, None if it is no duplicate."""
        content_hash = self._hash_of.pop(page, None)
        if content_hash is not None:
            self._keep(content_hash, [duplicate for duplicate in self.by_hash[content_hash] if duplicate.page != page])
        return content_hash

    def pop(self, content_hash: int) -> DuplicatePage | None:
        """Remove and return a duplicate that becomes the known page of this content: the one that is computed first."""
        duplicates = self.by_hash.get(content_hash)
        if not duplicates:
            return None
        first = min(duplicates)
        self.remove(first.page)
        return first

    def drop(self, first_plan: int) -> set[int]:
        """The plans from this one on are lost, and what they compute. Returns the pages that are no duplicates any more."""
        lost = {
            duplicate.page for duplicates in self.by_hash.values() for duplicate in duplicates if duplicate.plan >= first_plan
        }
        for page in lost:
            self.remove(page)
        return lost

    def _keep(self, content_hash: int, duplicates: list[DuplicatePage]) -> None:
        if duplicates:
            self.by_hash[content_hash] = duplicates
        else:
            del self.by_hash[content_hash]
