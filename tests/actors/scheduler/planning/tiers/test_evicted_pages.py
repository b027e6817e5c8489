"""Evicted pages are stored, or what the tier has of them already is overwritten last."""

from __future__ import annotations

from actors.pages.host_ledger import Content, HostLedger
from actors.pages.seal_table import private_table
from actors.scheduler.planning.pending_stores import PendingStores, Store
from actors.scheduler.planning.tiers.evicted_pages import EvictedPages
from messages.steps import PAGE_TOKENS


def _content(number: int) -> Content:
    return 2 * number + 101, 0, bytes([number]) * (4 * PAGE_TOKENS)


def _host() -> HostLedger:
    """Three places, with the contents 0, 1 and 2; 0 goes first."""
    host = HostLedger(private_table(1, 3))
    for number in range(3):
        host.store(_content(number))
    return host


def test_what_has_no_place_is_stored() -> None:
    host, stores = _host(), PendingStores()
    EvictedPages(stores).add(host, [(7, _content(3)), (8, _content(2))], can_store=True)
    place = host.find(_content(3))
    assert place is not None
    assert stores.take_except(()) == [Store(7, place, _content(3)[0])]


def test_what_is_evicted_with_others_is_not_overwritten_for_them() -> None:
    host, stores = _host(), PendingStores()
    EvictedPages(stores).add(host, [(7, _content(3)), (8, _content(0))], can_store=True)
    assert host.find(_content(0)) is not None
    assert host.find(_content(1)) is None


def test_the_use_of_a_place_is_noted_later() -> None:
    host, evictions = _host(), EvictedPages(PendingStores())
    evictions.add(host, [(8, _content(0))], can_store=True)
    evictions.note_used(host)
    host.store(_content(4))
    assert host.find(_content(0)) is not None
    assert host.find(_content(1)) is None


def test_while_nothing_can_be_stored_uses_count_all_the_same() -> None:
    host, stores = _host(), PendingStores()
    evictions = EvictedPages(stores)
    evictions.add(host, [(7, _content(3)), (8, _content(0))], can_store=False)
    evictions.note_used(host)
    assert not stores
    host.store(_content(4))
    assert host.find(_content(0)) is not None
