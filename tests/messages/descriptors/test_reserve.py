"""Files in reserve: given back when the process can open no other file, and taken again when there is room for all of them."""

from __future__ import annotations

import errno
import os

import pytest
from structlog.testing import capture_logs

from messages.descriptors import reserve as reserve_file
from messages.descriptors.reserve import FileReserve, hold_reserve, process_reserve


class Table:
    """The open files of a process that may open `limit` of them; `used`: those of others."""

    def __init__(self, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limit, self.used, self.now_s, self.number = limit, 0, 100.0, errno.EMFILE
        self.open: set[int] = set()
        monkeypatch.setattr(reserve_file, "most_open_files", lambda: self.limit)
        monkeypatch.setattr(reserve_file.os, "close", self.open.remove)

    def open_file(self) -> int:
        if self.count_open() >= self.limit:
            raise OSError(self.number, os.strerror(self.number))
        descriptor = next(n for n in range(self.limit) if n not in self.open)
        self.open.add(descriptor)
        return descriptor

    def count_open(self) -> int:
        return self.used + len(self.open)

    def reserve(self, n: int) -> FileReserve:
        return FileReserve(n, self.open_file, self.count_open, lambda: self.now_s)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_the_reserve_is_there_for_others_as_long_as_no_file_can_be_opened(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(10, monkeypatch)
    reserve = table.reserve(4)
    assert (reserve.check(), len(table.open)) == (False, 4)
    table.number, table.used = number, 6
    assert (reserve.check(), len(table.open)) == (True, 0), "all of it is free for others"
    table.used = 9
    assert (reserve.check(), len(table.open)) == (True, 0)
    table.used = 6
    assert (reserve.check(), len(table.open)) == (True, 0), "there is room for the reserve alone"
    table.used = 5
    assert (reserve.check(), len(table.open)) == (False, 4)
    reserve.close()
    assert not table.open


def test_a_limit_below_what_is_open_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(100, monkeypatch)
    table.used = 50
    reserve = table.reserve(4)
    table.limit = 20
    assert (reserve.check(), len(table.open)) == (True, 0)
    table.limit = 100
    assert (reserve.check(), len(table.open)) == (False, 4)


def test_a_soft_limit_that_was_lowered_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(100, monkeypatch)
    reserve = table.reserve(4)
    table.limit = 0

    def raised() -> int:
        table.limit = 100
        return 100

    monkeypatch.setattr(reserve_file, "most_open_files", raised)
    assert (reserve.check(), len(table.open)) == (False, 4)


def test_it_is_said_once_a_minute_and_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(10, monkeypatch)
    reserve = table.reserve(4)
    table.used = 10
    with capture_logs() as logs:
        for _ in range(250):  # 125 s
            reserve.check()
            table.now_s += 0.5
        table.used = 0
        reserve.check()
        reserve.check()
    assert [(line["log_level"], line.get("for_s")) for line in logs] == [
        ("error", 0), ("error", 60), ("error", 120), ("warning", None)
    ]  # fmt: skip


def test_without_a_reserve_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(0, monkeypatch)
    assert not table.reserve(0).check()
    assert not process_reserve().check()


def test_a_process_holds_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve_file._ProcessReserve, "reserve", FileReserve())
    before = len(os.listdir("/proc/self/fd"))
    hold_reserve()
    try:
        assert len(os.listdir("/proc/self/fd")) - before == reserve_file.RESERVED_FILES
        assert not process_reserve().check()
    finally:
        process_reserve().close()
