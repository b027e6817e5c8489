"""What a replica does with its own pages while it lends some of them."""

from __future__ import annotations

import pytest

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.forgetting_ledger import ForgettingLedger
from actors.pages.host_ledger import Content
from actors.pages.page_hash import page_hash
from actors.scheduler.planning.exchange.lending import Asker, Lending
from messages.caches.exchange import PagesExchanged, PagesWanted
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s, uint64s

_N_PAGES = 6


def chain(n: int) -> list[Content]:
    """The contents of a prompt of so many pages."""
    contents, parent = list[Content](), ROOT
    for number in range(n):
        tokens = int32s([number] * PAGE_TOKENS).tobytes()
        contents.append((page_hash(parent, tokens), parent, tokens))
        parent = contents[-1][0]
    return contents


@pytest.mark.parametrize("eviction", list(EvictionName))
@pytest.mark.parametrize("is_done", [True, False])
def test_pages_that_were_lent_are_evicted_before_those_that_they_continue(eviction: EvictionName, is_done: bool) -> None:
    ledger, contents = ForgettingLedger(_N_PAGES, make_eviction(eviction, _N_PAGES)), chain(_N_PAGES)
    pages = [page for _ in contents if (page := ledger.allocate()) is not None]
    for page, content in zip(pages, contents, strict=True):
        ledger.seal(page, *content, is_planned=False)
    ledger.release(pages)

    lending = Lending(1, lambda: 0.0, lambda: 0.0)
    lending.begin_epoch(ledger, 20)
    wanted = contents[3:]
    hashes, tokens = [wanted[0][1], *(content[0] for content in wanted)], b"".join(content[2] for content in wanted)
    lending.wanted(
        Asker("scheduler/1", 1, 7), PagesWanted(call=7, hashes=uint64s(hashes), tokens=int32s(memoryview(tokens).cast("i")))
    )
    assert lending.held == [pages]
    ledger.audit(lending.held)
    piece = lending.next_piece(1)
    assert piece is not None
    assert [copy.page for copy in piece.copies] == pages[3:]
    if is_done:
        lending.copied("worker/0.0", PagesExchanged(epoch=1, number=1, region=5))
    else:
        lending.clear()
    assert lending.held == []
    ledger.audit([])
    assert [ledger.allocate() for _ in pages] == pages[::-1]
