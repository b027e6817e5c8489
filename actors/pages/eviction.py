"""Which cached page is overwritten next. One policy object per page ledger, chosen when the ledger is made. Pure.

The ledger calls a policy with lists of pages, because a sequence takes and gives back many pages at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class EvictionPolicy(Protocol):
    """The cached pages of one ledger (known content, no holder), and what it remembers of the use of held ones.

    Every method takes constant or logarithmic time per page.
    """

    def __len__(self) -> int:
        """Number of cached pages."""
        ...

    def __contains__(self, page: object) -> bool:
        """Is this page cached?"""
        ...

    def add(self, pages: list[int]) -> None:
        """These pages have lost their last holder. Where the policy has no other preference, the first is evicted first."""
        ...

    def remove(self, pages: list[int]) -> None:
        """These cached pages have a holder again. Raises: KeyError when one is not cached."""
        ...

    def use(self, pages: list[int]) -> None:
        """A sequence has reused the content of these pages, which it holds, instead of computing it."""
        ...

    def evict(self) -> int:
        """Remove and return the page to overwrite, and forget its uses. Raises: KeyError when no page is cached."""
        ...

    def forget(self, page: int) -> None:
        """The content of a page, cached or held, is not known any more: it is not cached, and its uses do not count."""
        ...


class LruEviction(EvictionPolicy):
    """Least recently used first: the page that has been without a holder for the longest time."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, page: object) -> bool:
        return page in self._pages

    def add(self, pages: list[int]) -> None:
        for page in pages:
            self._pages[page] = None

    def remove(self, pages: list[int]) -> None:
        for page in pages:
            del self._pages[page]

    def use(self, pages: list[int]) -> None:
        """Nothing to remember: the order follows the last release."""

    def evict(self) -> int:
        return self._pages.popitem(last=False)[0]

    def forget(self, page: int) -> None:
        self._pages.pop(page, None)
