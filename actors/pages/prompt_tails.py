"""Pages that begin with the last tokens of a prompt, of which prompts that end alike take copies. Pure.

A *tail* is the last page of a prompt as far as the prompt fills it: 1 to PAGE_TOKENS tokens. Its sequence goes on writing after
it, in the same page, so the tokens of a tail stay where they are as long as somebody holds the page, or its content is known.
"""

from __future__ import annotations

from messages.steps import PAGE_TOKENS

_TOKEN_BYTES = 4
_MOST_OF_ONE_PARENT = 8  # different ones, among which a look-up compares; the oldest is forgotten

_PlanOf = dict[int, int]  # page -> number of the plan that computes the last token of the tail, the oldest plan first


class PromptTails:
    """The tails of one ledger. Constant time for each."""

    def __init__(self) -> None:
        self._by_parent: dict[int, dict[bytes, _PlanOf]] = {}  # by the hash of the page before, then by tokens
        self.place_of: dict[int, tuple[int, bytes]] = {}  # by page: parent, tokens
        self._plan = 0  # the number of the plan that is being made

    def __len__(self) -> int:
        return len(self.place_of)

    def __contains__(self, page: object) -> bool:
        return page in self.place_of

    def add(self, page: int, parent: int, tokens: bytes) -> None:
        """The plan that is being made computes the last of these tokens, with which a held page begins. parent: the hash of the
        page before."""
        if page in self.place_of:
            self.discard(page)
        tails = self._by_parent.setdefault(parent, {})
        tails.setdefault(tokens, {})[page] = self._plan
        self.place_of[page] = parent, tokens
        if len(tails) > _MOST_OF_ONE_PARENT:
            for forgotten in list(next(iter(tails.values()))):
                self.discard(forgotten)

    def find(self, parent: int, tokens: bytes) -> tuple[int, int] | None:
        """The page that begins with most of these tokens after the page `parent`, once the plans have run that are sent, and
        how many these are; None if no page begins with any."""
        best, n_best = -1, 0
        for tail, pages in self._by_parent.get(parent, {}).items():
            page, plan = next(iter(pages.items()))
            if plan < self._plan and (n_equal := n_equal_tokens(tail, tokens)) > n_best:
                best, n_best = page, n_equal
        return (best, n_best) if n_best else None

    def is_planned(self, parent: int, tokens: bytes) -> bool:
        """True if the plan that is being made computes a tail that begins with all of these tokens; then the next plan can copy
        it."""
        tails = self._by_parent.get(parent, {}).items()
        return any(tail.startswith(tokens) and self._plan in pages.values() for tail, pages in tails)

    def end_plan(self) -> None:
        """The plan that was being made is sent."""
        self._plan += 1

    def discard(self, page: int) -> None:
        """The content of this page is lost, or is about to be. Does nothing when it has no tail."""
        if page not in self.place_of:
            return
        parent, tokens = self.place_of.pop(page)
        tails = self._by_parent[parent]
        del tails[tokens][page]
        if not tails[tokens]:
            del tails[tokens]
        if not tails:
            del self._by_parent[parent]

    def clear(self) -> None:
        """Plans in flight are lost. They may have written to any tail, because sequences compute some positions again."""
        self._by_parent.clear()
        self.place_of.clear()


def n_equal_tokens(left: bytes, right: bytes) -> int:
    """The number of leading tokens that are equal; at most those of a page are compared."""
    n_tokens = min(len(left), len(right), PAGE_TOKENS * _TOKEN_BYTES) // _TOKEN_BYTES
    while left[: n_tokens * _TOKEN_BYTES] != right[: n_tokens * _TOKEN_BYTES]:
        n_tokens -= 1
    return n_tokens
