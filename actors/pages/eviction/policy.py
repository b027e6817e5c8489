"""Which cached page is overwritten next. One policy object per page ledger, chosen when the ledger is made. Pure.

The ledger calls a policy with lists of pages, because a sequence takes and gives back many pages at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class EvictionPolicy(Protocol):
    """The cached pages of one ledger (known content, no holder), and the uses of pages, as far as the policy counts them.

    Every method takes constant or logarithmic time per page. A page is never evicted before a cached page that continues it:
    `add` names such pages first, and a page that is reused is reused with all pages before it.
    """

    def __len__(self) -> int:
        """Number of cached pages."""
        ...

    def __contains__(self, page: object) -> bool:
        """True if this page is cached."""
        ...

    def add(self, pages: list[int]) -> None:
        """Add pages that have lost their last holder. Pages that the policy ranks equal are evicted in this order."""
        ...

    def remove(self, pages: list[int]) -> None:
        """Remove cached pages that have a holder again. Raises: KeyError when one is not cached."""
        ...

    def use(self, pages: list[int]) -> None:
        """Count a use of each of these held pages: a sequence has reused its content instead of computing it."""
        ...

    def evict(self) -> int:
        """Remove and return the page to overwrite; `drop` follows. Raises: KeyError when no page is cached."""
        ...

    def hand_over(self, page: int, to: int) -> None:
        """From now on another, held page stands for the content of this page, and takes over its count of uses."""
        ...

    def drop(self, page: int) -> None:
        """Remove a page, cached or held, whose content is not known any more, and its uses."""
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
        """Does nothing: pages are ordered by the time of their last release."""

    def evict(self) -> int:
        return self._pages.popitem(last=False)[0]

    def hand_over(self, page: int, to: int) -> None:
        """Does nothing, as `use`."""

    def drop(self, page: int) -> None:
        self._pages.pop(page, None)
