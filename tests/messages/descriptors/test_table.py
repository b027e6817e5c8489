"""The table of a descriptor store keeps what was put, within its bounds, and closes what it no longer keeps."""

from __future__ import annotations

import pytest

from messages.descriptors.packets import MAX_BATCH
from messages.descriptors.table import DescriptorTable
from messages.errors import DescriptorError


@pytest.fixture
def closed() -> list[int]:
    return []


@pytest.fixture
def table(closed: list[int]) -> DescriptorTable:
    return DescriptorTable(max_entries=40, close=closed.append)


def test_entries_are_found_by_owner_and_key(table: DescriptorTable) -> None:
    table.put("worker/0.0", "kv", 5, b"a")
    table.put("worker/0.1", "kv", 6, b"b")
    entries, descriptors, is_last = table.find("worker/0.0", "kv")
    assert [(e.key, e.meta) for e in entries] == [("kv", b"a")]
    assert (descriptors, is_last) == ([5], True)
    assert table.find("worker/0.0", "weights") == ([], [], True)
    assert table.find("worker/0.2") == ([], [], True)
    assert table.owners == ["worker/0.0", "worker/0.1"]


def test_a_put_with_the_same_key_replaces_and_closes(table: DescriptorTable, closed: list[int]) -> None:
    table.put("a", "k", 5, b"")
    table.put("a", "k", 6, b"new")
    assert closed == [5]
    assert table.find("a")[1] == [6]
    assert len(table) == 1


def test_a_drop_closes_one_entry_or_all(table: DescriptorTable, closed: list[int]) -> None:
    for key, descriptor in (("x", 5), ("y", 6), ("z", 7)):
        table.put("a", key, descriptor, b"")
    table.put("b", "x", 8, b"")
    table.drop("a", "y")
    table.drop("a", "unknown")
    assert closed == [6]
    table.drop("a")
    assert closed == [6, 5, 7]
    assert (len(table), table.owners) == (1, ["b"])


def test_many_entries_come_in_batches_in_the_order_of_their_puts(table: DescriptorTable) -> None:
    n = 2 * MAX_BATCH + 3
    for index in range(n):
        table.put("a", f"k{index}", 100 + index, b"")
    table.put("a", "k0", 500, b"again")  # now the newest
    got: list[int] = []
    after, is_last = 0, False
    while not is_last:
        entries, descriptors, is_last = table.find("a", after=after)
        got += descriptors
        after = entries[-1].number
    assert got == [*range(101, 100 + n), 500]


def test_a_full_table_refuses_new_keys_only(table: DescriptorTable, closed: list[int]) -> None:
    for index in range(40):
        table.put("a", str(index), index + 10, b"")
    with pytest.raises(DescriptorError, match="expected at most 40"):
        table.put("a", "one more", 99, b"")
    assert closed == []
    table.put("a", "0", 98, b"")
    assert closed == [10]
    table.clear()
    assert len(table) == 0
