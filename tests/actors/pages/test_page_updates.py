"""The numbered messages to the directory, applied by a real index: it always holds what the ledger holds."""

from __future__ import annotations

from collections.abc import Sequence

from actors.cache_directory.prefix_index import PrefixIndex
from actors.pages.chain_root import ROOT
from actors.pages.eviction.lru import LruEviction
from actors.pages.host_ledger import HostLedger
from actors.pages.page_ledger import EvictedPage, PageLedger
from actors.pages.page_updates import PageUpdates
from actors.pages.seal_table import private_table
from messages.caches.prefixes import PagesDropped, PagesSealed

SCHEDULER = "scheduler/0"


def seal(ledger: PageLedger, content: int) -> int:
    page = ledger.allocate()
    assert page is not None
    ledger.seal(page, content, ROOT, b"%d" % content, is_planned=False)
    return page


def follow(index: PrefixIndex, messages: Sequence[PagesDropped | PagesSealed]) -> list[bool]:
    """What the directory does with these messages."""
    applied = []
    for message in messages:
        hashes, number = message.hashes.tolist(), int(message.number)
        if isinstance(message, PagesDropped):
            applied.append(index.update(SCHEDULER, number, [], hashes, in_tier=message.in_tier))
        elif message.snapshot:
            index.replace(SCHEDULER, number, hashes)
        else:
            applied.append(index.update(SCHEDULER, number, hashes, [], in_tier=message.in_tier))
    return applied


def holds(index: PrefixIndex, content: int) -> bool:
    return index.match([content]) == {SCHEDULER: 1}


def test_changes_after_a_snapshot_keep_the_directory_up_to_date() -> None:
    ledger, updates, index = PageLedger(2, LruEviction(2)), PageUpdates(), PrefixIndex(100)
    pages = [seal(ledger, 1)]
    follow(index, updates.snapshot(ledger))
    assert holds(index, 1)
    assert updates.changes(ledger) == []
    pages.append(seal(ledger, 2))
    ledger.release(pages)
    assert follow(index, updates.changes(ledger)) == [True]
    seal(ledger, 3)  # evicts 2, the page that was given back first
    messages = updates.changes(ledger)
    assert [type(message) for message in messages] == [PagesDropped, PagesSealed]
    assert follow(index, messages) == [True, True]
    assert [holds(index, content) for content in (1, 2, 3)] == [True, False, True]


def test_a_change_that_was_not_sent_shows_as_a_gap() -> None:
    ledger, updates, index = PageLedger(4, LruEviction(4)), PageUpdates(), PrefixIndex(100)
    follow(index, updates.snapshot(None))
    seal(ledger, 1)
    updates.changes(ledger)  # lost
    seal(ledger, 2)
    assert follow(index, updates.changes(ledger)) == [False]
    follow(index, updates.snapshot(ledger))
    assert holds(index, 1)
    assert holds(index, 2)


def test_a_snapshot_without_a_ledger_is_empty() -> None:
    (message,) = PageUpdates().snapshot(None)
    assert message.snapshot
    assert message.hashes.tolist() == []


def test_the_directory_knows_what_the_host_tier_has() -> None:
    """Two pages, and two places: 101 and 102 are evicted to the tier, and 101 is overwritten there."""
    ledger, tier, updates = PageLedger(2, LruEviction(2)), HostLedger(private_table(1, 2)), PageUpdates()
    index = PrefixIndex(100)

    def evicted(pages: list[EvictedPage]) -> None:
        for _, content in pages:
            tier.store(content)

    ledger.on_evicted = evicted
    follow(index, updates.snapshot(ledger, tier))
    for content in (101, 102, 103, 104):
        ledger.release([seal(ledger, content)])
        assert all(follow(index, updates.changes(ledger, tier)))
    chain = [101, 102, 103, 104]
    assert index.match(chain) == {SCHEDULER: 3}, "two on the device, and two in the tier that count less"
    seal(ledger, 105)
    assert all(follow(index, updates.changes(ledger, tier)))
    assert index.match(chain) == {}
    assert index.match(chain[1:]) == {SCHEDULER: 2}
    follow(index, updates.snapshot(ledger, tier))
    assert index.match(chain[1:]) == {SCHEDULER: 2}
    tier.clear()
    assert all(follow(index, updates.changes(ledger, tier)))
    assert index.match(chain[1:]) == {}
    assert index.match(chain[3:]) == {SCHEDULER: 1}
