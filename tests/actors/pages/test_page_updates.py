"""The numbered messages to the directory, applied by a real index: it always holds what the ledger holds."""

from __future__ import annotations

from actors.cache_directory.prefix_index import PrefixIndex
from actors.pages.chain_root import ROOT
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_ledger import PageLedger
from actors.pages.page_updates import PageUpdates
from messages.caches.prefixes import PagesDropped, PagesSealed

SCHEDULER = "scheduler/0"


def seal(ledger: PageLedger, content: int) -> int:
    page = ledger.allocate()
    assert page is not None
    ledger.seal(page, content, ROOT, b"%d" % content, is_planned=False)
    return page


def follow(index: PrefixIndex, messages: list[PagesDropped | PagesSealed]) -> list[bool]:
    """What the directory does with these messages."""
    applied = []
    for message in messages:
        hashes, number = message.hashes.tolist(), int(message.number)
        if isinstance(message, PagesDropped):
            applied.append(index.update(SCHEDULER, number, [], hashes))
        elif message.snapshot:
            index.replace(SCHEDULER, number, hashes)
        else:
            applied.append(index.update(SCHEDULER, number, hashes, []))
    return applied


def holds(index: PrefixIndex, content: int) -> bool:
    return index.match([content]) == {SCHEDULER: 1}


def test_changes_after_a_snapshot_keep_the_directory_up_to_date() -> None:
    ledger, updates, index = PageLedger(2, LruEviction()), PageUpdates(), PrefixIndex(100)
    pages = [seal(ledger, 1)]
    follow(index, [updates.snapshot(ledger)])
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
    ledger, updates, index = PageLedger(4, LruEviction()), PageUpdates(), PrefixIndex(100)
    follow(index, [updates.snapshot(None)])
    seal(ledger, 1)
    updates.changes(ledger)  # lost
    seal(ledger, 2)
    assert follow(index, updates.changes(ledger)) == [False]
    follow(index, [updates.snapshot(ledger)])
    assert holds(index, 1)
    assert holds(index, 2)


def test_a_snapshot_without_a_ledger_is_empty() -> None:
    message = PageUpdates().snapshot(None)
    assert message.snapshot
    assert message.hashes.tolist() == []
