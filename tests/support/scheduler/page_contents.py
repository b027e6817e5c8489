"""What the pages of a made-up gang hold: for each position the token, and a hash of all tokens up to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Values

import numpy as np

from actors.pages.page_ledger import PageLedger
from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS, PageCopies

_Place = tuple[int, int]  # token, hash of all tokens up to it
_ANYTHING: _Place = (-1, -1)


class PageContents:
    """The contents of one memory."""

    def __init__(self) -> None:
        self._places: defaultdict[int, list[_Place]] = defaultdict(lambda: [_ANYTHING] * PAGE_TOKENS)

    def write(self, sequence: Sequence, pages: Values[int], start: int, stop: int) -> None:
        """A step has computed positions [start, stop). Those whose tokens have never become known hold anything."""
        places = _places_of(sequence)
        for position in range(start, stop):
            known = places[position] if position < len(places) else _ANYTHING
            self._places[pages[position // PAGE_TOKENS]][position % PAGE_TOKENS] = known

    def copy(self, copies: PageCopies) -> None:
        """A plan has copied pages: what they hold after the copied tokens is not defined."""
        for source, target, n in zip(copies.sources.tolist(), copies.targets.tolist(), copies.tokens.tolist(), strict=True):
            self._places[target] = [*self._places[source][:n], *[_ANYTHING] * (PAGE_TOKENS - n)]

    def spoil_copies(self, copies: PageCopies) -> None:
        """A lost plan may have copied anything."""
        for target in copies.targets.tolist():
            self._places[target] = [_ANYTHING] * PAGE_TOKENS

    def spoil(self, pages: Values[int], start: int, stop: int) -> None:
        """A lost step may have written anything at positions [start, stop)."""
        for position in range(start, stop):
            self._places[pages[position // PAGE_TOKENS]][position % PAGE_TOKENS] = _ANYTHING

    def check(self, sequence: Sequence, pages: Values[int], n: int) -> None:
        """Check the pages of a sequence. Raises: AssertionError when positions [0, n) do not hold exactly its tokens."""
        for position, place in enumerate(_places_of(sequence)[:n]):
            page = pages[position // PAGE_TOKENS]
            assert self._places[page][position % PAGE_TOKENS] == place, f"sequence {sequence.number}: {position} in page {page}"

    def check_ledger(self, ledger: PageLedger) -> None:
        """Check the pages of a ledger. Raises: AssertionError when a full page holds other tokens than it says."""
        for page, (_, _, tokens) in ledger._content.items():
            assert [token for token, _ in self._places[page]] == np.frombuffer(tokens, "<i4").tolist(), f"page {page}"


def _places_of(sequence: Sequence) -> list[_Place]:
    places, before = [], 0
    for token in sequence.tokens().tolist():
        before = hash((before, token))
        places.append((token, before))
    return places
