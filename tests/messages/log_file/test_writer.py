"""A log file whose disk hangs or refuses costs lines, and nothing else."""

from __future__ import annotations

import threading

from messages.log_file.rotated_file import RotatedFile
from messages.log_file.writer import LogWriter

DEADLINE_S = 120.0


class HeldFile(RotatedFile):
    """Takes lines when it is let, and refuses them when it is told to."""

    def __init__(self) -> None:
        self.is_open, self.lines, self.refuses = threading.Event(), list[bytes](), False
        self.has_begun = threading.Event()

    def append(self, lines: bytes) -> bool:
        self.has_begun.set()
        assert self.is_open.wait(DEADLINE_S)
        if self.refuses:
            raise OSError(28, "No space left on device")
        self.lines += lines.splitlines()
        return True


def lost(n_lines: int) -> bytes:
    return b"lost %d" % n_lines


def test_a_disk_that_hangs_stops_no_caller_and_the_buffer_has_a_bound() -> None:
    file = HeldFile()
    writer = LogWriter(file, lost)
    writer.write([b"first"])
    assert file.has_begun.wait(DEADLINE_S)
    for _ in range(3000):  # three times the bound; returns although nothing can be written
        writer.write([b"x" * 1023])
    writer.flush(0.0)
    file.is_open.set()
    writer.flush(DEADLINE_S)
    n_kept = file.lines.count(b"x" * 1023)
    assert 1000 <= n_kept <= 1025
    writer.write([b"last"])
    writer.flush(DEADLINE_S)
    assert file.lines[0] == b"first"
    assert file.lines[-1] == b"last"
    assert lost(3000 - n_kept) in file.lines


def test_lines_that_a_full_disk_refuses_are_counted_and_reported_once_there_is_room() -> None:
    file = HeldFile()
    file.is_open.set()
    writer = LogWriter(file, lost)
    file.refuses = True
    for number in range(3):
        writer.write([b"%d" % number])
        writer.flush(DEADLINE_S)
    file.refuses = False
    writer.write([b"a", b"b"])
    writer.flush(DEADLINE_S)
    assert file.lines == [lost(3), b"a", b"b"]
