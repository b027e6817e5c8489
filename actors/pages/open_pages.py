"""Free pages that the last scheduler has left partly filled, as its seal table says. Pure.

A sequence that goes on finds its last page here, and computes one token instead of the whole page again.
"""

from __future__ import annotations

from actors.pages.prompt_tails import n_equal_tokens
from actors.pages.seal_table import SealTable


class OpenPages:
    """At most one page for each sequence that was running: pages that nobody holds have no record."""

    def __init__(self, table: SealTable) -> None:
        self._table = table
        self._by_parent: dict[int, list[int]] = {}  # by the hash of the page before
        pages, _, parents = table.read_open()
        for page, parent in zip(pages.tolist(), parents.tolist(), strict=True):
            self._by_parent.setdefault(parent, []).append(page)
        self._n_pages = len(pages)

    def __len__(self) -> int:
        return self._n_pages

    @property
    def pages(self) -> list[int]:
        """All pages that are open."""
        return [page for pages in self._by_parent.values() for page in pages]

    def take(self, parent: int, tokens: bytes) -> tuple[int, int] | None:
        """The page that holds most of these tokens after the page `parent`, and how many; None if none holds any. It has no
        record any more."""
        best, n_best = -1, 0
        for page in self._by_parent.get(parent, ()):
            n_equal = n_equal_tokens(self._table.open_tokens(page), tokens)
            if n_equal > n_best:
                best, n_best = page, n_equal
        if not n_best:
            return None
        self._remove(parent, best)
        return best, n_best

    def pop(self) -> int:
        """Any page, for another use. Raises: KeyError when there is none."""
        if not self._n_pages:
            raise KeyError("pop: expected an open page, got none")
        parent, pages = next(iter(self._by_parent.items()))
        page = pages[0]
        self._remove(parent, page)
        return page

    def _remove(self, parent: int, page: int) -> None:
        self._table.erase(page)
        self._n_pages -= 1
        self._by_parent[parent].remove(page)
        if not self._by_parent[parent]:
            del self._by_parent[parent]
