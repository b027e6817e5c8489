"""What the page ledger asks of an eviction policy: one object per ledger, chosen when the ledger is made. Pure.

The ledger calls a policy with lists of pages, because a sequence takes and gives back many pages at once. A page is named by
its number. Policies that remember more than which pages are there now also learn the content of each page: the number of a page
says nothing once it is overwritten, the hash of its content does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from actors.pages.eviction.ghosts import Ghosts


@dataclass(frozen=True)
class PolicyFigures:
    """What one policy has done, since its ledger was made."""

    hits: int  # pages that were reused while this policy chose
    evictions: int  # pages that it chose
    ghost_hits: int  # pages that were computed again soon after it had evicted them (`ghosts.py`)
    shadow_hits: int = 0  # pages that it would have found by itself, as "adaptive" estimates (`shadow.py`)


class EvictionPolicy(Protocol):
    """The cached pages of one ledger (known content, no holder), and the uses of pages, as far as the policy counts them.

    Every method takes constant or logarithmic time per page. A page is never evicted before a cached page that continues it:
    `add` names such pages first, and a page that is reused is reused with all pages before it.
    """

    reads_contents: bool = True  # False: the ledger need not call `learn`
    # the caller tells them of contents that this policy evicts without knowing them; None: it knows them
    ghosts: Ghosts | None = None

    def __len__(self) -> int:
        """Number of cached pages."""
        ...

    def __contains__(self, page: object) -> bool:
        """True if this page is cached."""
        ...

    def learn(self, page: int, content_hash: int, parent: int) -> None:
        """Note that a held page has a new content, which was computed. parent: the hash of the page before, or ROOT."""
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

    def evicted_next(self, n: int) -> list[int]:
        """At most n of the pages that `evict` would return next, in this order; [] where that is not known without a search."""
        return []

    def hand_over(self, page: int, to: int) -> None:
        """From now on another, held page stands for the content of this page, and takes over its count of uses."""
        ...

    def drop(self, page: int) -> None:
        """Remove a page, cached or held, whose content is not known any more, and its uses."""
        ...

    def figures(self, hits: int, evictions: int) -> Mapping[str, PolicyFigures]:
        """The figures of each policy that has chosen, by its name. Args: the ledger's counts."""
        ...
