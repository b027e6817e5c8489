"""Which cached pages an operator wants forgotten: those of a circle of callers, of prompts that begin alike, of some age. Pure.

Pages are a forest: each continues the page before it, and each tree begins at a root (`chain_root.py`). A page that continues a
forgotten one could never be found, so it is forgotten too. Pages inside of a prefix belong to all prompts that go on from them:
they are forgotten once no page continues them any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from actors.pages.chain_root import ROOT
from messages.steps import PAGE_TOKENS

_PAGE_BYTES = PAGE_TOKENS * 4
_MOST_ROOTS = 65_536


class Forgetting(NamedTuple):
    """What is to be forgotten: what meets all conditions.

    `scope`: of the requests that cached it; b"" is the circle of those without one; None: of any. `tokens`: its prompts begin
    with these, int32 little-endian. `older_than_s`: it was computed longer ago than this.
    `model`: the number of the served model that computed it; None: any. A page ledger has pages of one model only.
    """

    scope: bytes | None = None
    tokens: bytes = b""
    older_than_s: float = 0.0
    model: int | None = None

    @property
    def is_everything(self) -> bool:
        """True if there is no condition."""
        return self == _EVERYTHING


_EVERYTHING = Forgetting()


class KnownPage(NamedTuple):
    """A page whose content is known. `since_s`: when it was computed, on the clock of its ledger."""

    page: int
    content_hash: int
    parent: int
    tokens: bytes
    since_s: float


class RootScopes:
    """The scope of each root that requests have had, as far as they are remembered."""

    def __init__(self) -> None:
        self._scope_of: dict[int, bytes] = {ROOT: b""}

    def note(self, root: int, scope: bytes) -> None:
        """A request of this scope has this root."""
        if len(self._scope_of) >= _MOST_ROOTS:
            self._scope_of = {ROOT: b""}
        self._scope_of[root] = scope

    def scope_of(self, root: int) -> bytes:
        """The scope of a root; b"" if it has none, or is not remembered."""
        return self._scope_of.get(root, b"")

    def may_be(self, root: int, scope: bytes | None) -> bool:
        """True unless the root is known to be of another scope. That of a page which was taken over is not known: it is
        forgotten rather too often."""
        return scope is None or self._scope_of.get(root, scope) == scope


def pages_to_forget(known: Iterable[KnownPage], wanted: Forgetting, roots: RootScopes, now_s: float) -> list[int]:
    """The pages to forget. Takes about 2 µs for each known page, while the scheduler waits."""
    after: dict[int, list[KnownPage]] = {}  # by the hash of the page before
    for page in known:
        after.setdefault(page.parent, []).append(page)
    until_s, found = now_s - wanted.older_than_s, dict[int, None]()
    for root in [parent for parent in after if parent % 2 == 0 and roots.may_be(parent, wanted.scope)]:
        inside, tops = _below(after, root, wanted.tokens)
        _add_subtrees(after, tops, until_s, found)
        for page in reversed(inside):
            if page.since_s > until_s or any(one.page not in found for one in after.get(page.content_hash, ())):
                break
            found[page.page] = None
    return list(found)


def _below(after: Mapping[int, list[KnownPage]], root: int, tokens: bytes) -> tuple[list[KnownPage], Sequence[KnownPage]]:
    """(pages inside of the prefix `tokens`, in order; the pages after them that begin with the rest of it)."""
    inside: list[KnownPage] = []
    parent = root
    while len(tokens) >= _PAGE_BYTES:
        page = next((one for one in after.get(parent, ()) if one.tokens == tokens[:_PAGE_BYTES]), None)
        if page is None:
            return inside, ()
        inside.append(page)
        parent, tokens = page.content_hash, tokens[_PAGE_BYTES:]
    return inside, [one for one in after.get(parent, ()) if one.tokens.startswith(tokens)]


def _add_subtrees(
    after: Mapping[int, list[KnownPage]], tops: Sequence[KnownPage], until_s: float, found: dict[int, None]
) -> None:
    """Add the pages of these trees that were computed before `until_s`, and all pages that continue them."""
    left = [(page, False) for page in tops]
    while left:
        page, is_cut_off = left.pop()
        if is_cut_off := is_cut_off or page.since_s <= until_s:
            found[page.page] = None
        left.extend([(one, is_cut_off) for one in after.get(page.content_hash, ())])
