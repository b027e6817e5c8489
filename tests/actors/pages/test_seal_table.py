"""The seal table keeps the content of pages in shared memory, and the ledger of the next scheduler adopts it."""

from __future__ import annotations

import os
import random
import struct
from collections import deque
from typing import Any

import numpy as np
import pytest

from actors.pages import seal_table
from actors.pages.chain_root import ROOT
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_hash import depths, page_hash
from actors.pages.page_ledger import PageLedger
from actors.pages.seal_table import SealTable, create_table, format_table, map_table, table_bytes
from messages.steps import PAGE_TOKENS


def table_of(n_pages: int, generation: int = 7) -> SealTable:
    return format_table(bytearray(table_bytes(n_pages)), generation, n_pages)


def tokens_of(number: int) -> bytes:
    return b"".join((number * 100 + i).to_bytes(4, "little") for i in range(PAGE_TOKENS))


def contents_of(table: SealTable) -> dict[int, tuple[int, int, bytes]]:
    """The content of each page that has a record."""
    return {page: table.content(page) for page in table.read().pages.tolist()}


def chain_of(*numbers: int) -> list[tuple[int, int, bytes]]:
    """The contents of the pages of one prompt: (hash, parent's hash, tokens)."""
    contents, parent = [], ROOT
    for number in numbers:
        tokens = tokens_of(number)
        contents.append((page_hash(parent, tokens), parent, tokens))
        parent = contents[-1][0]
    return contents


def test_records_are_read_by_another_mapping_of_the_memory() -> None:
    descriptor, table = create_table(generation=41, n_pages=10)
    first, second = chain_of(1, 2)
    table.record(3, *first)
    table.record(9, *second)
    table.record(5, *chain_of(8)[0])
    table.erase(5)
    other = map_table(descriptor)
    os.close(descriptor)
    assert (other.generation, other.n_pages) == (41, 10)
    assert contents_of(other) == {3: first, 9: second}
    table.clear()
    assert contents_of(other) == {}


def test_records_are_compared_and_erased_together() -> None:
    table, chain = table_of(6), chain_of(1, 2, 3, 4)
    pages = [4, 0, 5, 2]
    for page, content in zip(pages, chain, strict=True):
        table.record(page, *content)
    assert table.n_equal(pages, chain) == 4
    assert table.n_equal([], chain) == 0
    content_hash, parent, tokens = chain[2]
    for other in ((5, parent, tokens), (content_hash, 5, tokens), (content_hash, parent, tokens_of(9))):
        assert table.n_equal(pages, [*chain[:2], other, chain[3]]) == 2
    table.erase_all([4, 5])
    assert contents_of(table) == {0: chain[1], 2: chain[3]}
    assert table.n_equal(pages, chain) == 0
    assert table.n_equal(pages[3:], chain[3:]) == 1


def test_a_record_that_is_being_written_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = bytearray(table_bytes(4))
    table = format_table(buffer, 7, 4)
    states: list[bytes] = []  # after each store

    class Watched:
        """In the place of a `struct.Struct`: notes the table after each store."""

        def __init__(self, real: struct.Struct) -> None:
            self.real = real

        def pack_into(self, *args: Any) -> None:
            self.real.pack_into(*args)
            states.append(bytes(buffer))

    for name in ("_HASH", "_CONTENT"):
        monkeypatch.setattr(seal_table, name, Watched(getattr(seal_table, name)))
    first, second = chain_of(1)[0], chain_of(2)[0]
    table.record(0, *first)
    table.erase(0)
    table.record(0, *second)
    known = [contents_of(SealTable(bytearray(state))) for state in states]
    assert known == [{}, {0: first}, {}, {}, {0: second}]


@pytest.mark.parametrize("content", [b"", b"\x00" * 200, os.urandom(300)], ids=["empty", "zeros", "noise"])
def test_other_bytes_are_no_table(content: bytes) -> None:
    with pytest.raises(ValueError, match="seal table"):
        SealTable(bytearray(content))


def test_a_table_that_is_too_short_is_refused() -> None:
    buffer = bytearray(table_bytes(10))
    format_table(buffer, 7, 10)
    with pytest.raises(ValueError, match="records of 10 pages"):
        SealTable(buffer[:-1])


def planned(ledger: PageLedger, *contents: tuple[int, int, bytes]) -> list[int]:
    """Pages that a plan fills with these contents."""
    pages = [ledger.allocate() for _ in contents]
    held = [page for page in pages if page is not None]
    for page, content in zip(held, contents, strict=True):
        ledger.seal(page, *content, is_planned=True)
    ledger.commit_plan()
    return held


def test_a_page_is_recorded_when_its_step_has_been_applied_and_not_before() -> None:
    table = table_of(8)
    ledger = PageLedger(8, LruEviction(8), table)
    pages = planned(ledger, *chain_of(1, 2))
    assert contents_of(table) == {}
    ledger.apply_plan()
    assert list(contents_of(table)) == pages


def test_the_pages_of_lost_steps_are_never_recorded() -> None:
    table = table_of(8)
    ledger = PageLedger(8, LruEviction(8), table)
    first = planned(ledger, *chain_of(1))
    ledger.apply_plan()
    second = planned(ledger, *chain_of(5))
    ledger.drop_unapplied()
    ledger.release(first)
    ledger.release(second)
    assert list(contents_of(table)) == first


def test_a_record_is_erased_before_its_page_is_used_again() -> None:
    table = table_of(2)
    ledger = PageLedger(2, LruEviction(2), table)
    ledger.release(planned(ledger, *chain_of(1, 2)))
    ledger.apply_plan()
    assert len(contents_of(table)) == 2
    ledger.allocate()
    assert len(contents_of(table)) == 1


def test_a_plan_that_is_applied_late_records_nothing_for_a_page_that_was_evicted() -> None:
    table = table_of(1)
    ledger = PageLedger(1, LruEviction(1), table)
    content = chain_of(1)[0]
    ledger.release(planned(ledger, content))  # its sequence was cancelled while the plan was in flight
    planned(ledger, content)  # the page is evicted, and a later plan fills it again
    ledger.apply_plan()
    assert contents_of(table) == {}  # the later plan is still writing
    ledger.apply_plan()
    assert len(contents_of(table)) == 1


def test_the_next_ledger_finds_what_the_table_holds_and_evicts_prefixes_last() -> None:
    table = table_of(6)
    contents = chain_of(1, 2, 3)
    ledger = PageLedger(6, LruEviction(6), table)
    pages = planned(ledger, *contents)
    ledger.apply_plan()
    after = PageLedger(6, LruEviction(6), table)
    assert after.adopt() == 3
    assert [after.find(*content) for content in contents] == pages
    assert after.n_available == 6
    after.audit([])
    taken = [after.allocate() for _ in range(6)]
    assert taken[3:] == list(reversed(pages))
    assert contents_of(table) == {}


def test_pages_without_their_prefix_stay_free() -> None:
    contents = chain_of(1, 2, 3)
    table = table_of(4)
    table.record(0, *contents[0])
    table.record(2, *contents[2])
    ledger = PageLedger(4, LruEviction(4), table)
    assert ledger.adopt() == 1
    ledger.audit([])
    assert ledger.statistics().cached == 1


def test_a_damaged_record_is_never_found() -> None:
    """Any flipped byte: its page is not found, and the ledger goes on."""
    contents = chain_of(1, 2, 3)
    for at in range(64, table_bytes(3)):
        buffer = bytearray(table_bytes(3))
        table = format_table(buffer, 7, 3)
        for page, content in enumerate(contents):
            table.record(page, *content)
        buffer[at] ^= 1 << at % 8
        ledger = PageLedger(3, LruEviction(3), table)
        ledger.adopt()
        ledger.audit([])
        damaged = (at - 64) // 80
        assert ledger.find(*contents[damaged]) is None
        assert [ledger.find(*content) for content in contents[:damaged]] == list(range(damaged))
        assert sorted(page for page in (ledger.allocate() for _ in range(3)) if page is not None) == [0, 1, 2]


def test_two_records_of_one_content_are_adopted_once() -> None:
    content = chain_of(1)[0]
    table = table_of(4)
    table.record(1, *content)
    table.record(3, *content)
    ledger = PageLedger(4, LruEviction(4), table)
    assert ledger.adopt() == 1
    ledger.audit([])
    assert ledger.find(*content) in (1, 3)
    assert sorted(page for page in (ledger.allocate() for _ in range(4)) if page is not None) == [0, 1, 2, 3]


def test_the_depth_of_a_page_is_the_length_of_its_chain() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        parents: dict[int, int] = {}
        for one in [rng.getrandbits(64) | 1 for _ in range(40)]:
            parents[one] = rng.choice([ROOT, 8, 5, *parents, *parents, *parents])  # 8 is a root too, and 5 is not there
        if seed % 2:
            parents[rng.choice(list(parents))] = rng.choice(list(parents))  # perhaps a circle

        def length(one: int, parents: dict[int, int] = parents) -> int:
            for n in range(1, 42):
                one = parents.get(one, -1)
                if one in (ROOT, 8, -1):
                    return n if one != -1 else 0
            return 0

        found = depths(np.array(list(parents), np.uint64), np.array(list(parents.values()), np.uint64))
        assert found.tolist() == [length(one) for one in parents]
    assert depths(np.array([], np.uint64), np.array([], np.uint64)).tolist() == []


def test_any_history_leaves_a_table_of_applied_pages_only() -> None:
    """Random plans, results, releases and losses: the table holds exactly what is found and applied."""
    for seed in range(60):
        rng = random.Random(seed)
        table = table_of(6)
        ledger = PageLedger(6, LruEviction(6), table)
        content_of: dict[int, int] = {}  # page -> the hash that its last applied step has written
        flight: deque[list[tuple[int, int]]] = deque()
        held: list[list[int]] = []
        for _ in range(120):
            match rng.randrange(5):
                case 0 | 1 if ledger.n_available >= 2:
                    contents = [c for c in chain_of(*rng.sample(range(4), 2)) if ledger.find(*c) is None]
                    pages = planned(ledger, *contents)
                    held.append(pages)
                    flight.append([(page, content[0]) for page, content in zip(pages, contents, strict=True)])
                    for page in pages:
                        content_of.pop(page, None)  # being overwritten
                case 2 if flight:
                    ledger.apply_plan()
                    content_of.update(flight.popleft())
                case 3 if held:
                    ledger.release(held.pop(rng.randrange(len(held))))
                case 4 if rng.random() < 0.2:
                    ledger.drop_unapplied()
                    flight.clear()
            for page, content in contents_of(table).items():
                assert content_of[page] == content[0]
