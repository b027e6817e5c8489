"""A reader follows a log file through rotations, and loses and repeats no line."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from messages.log_file.rotated_file import LEAST_BYTES, N_OLD, LogFile, RotatedFile
from supervisor.log_reader.files import LogReader

ONE_FILE_BYTES = LEAST_BYTES // (N_OLD + 1)


def lines(first: int, number: int) -> list[bytes]:
    return [b"%08d" % n + b"x" * 10_000 for n in range(first, first + number)]


def test_it_waits_for_a_file_and_for_the_rest_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    reader = LogReader(path)
    assert list(reader.read_all()) == list(reader.read_new()) == []
    path.write_bytes(b"one\ntw")
    assert list(reader.read_new()) == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\n")
    assert list(reader.read_new()) == [b"two"]
    reader.close()


@settings(max_examples=20, deadline=None)
@given(batches=st.lists(st.integers(0, 60), max_size=12), data=st.data())  # a file holds 26 lines
def test_every_line_comes_once_in_order(tmp_path_factory, batches: list[int], data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("log") / "server.log"
    file, reader = RotatedFile(LogFile(str(path), 0)), LogReader(path)
    written, read = list[bytes](), list(reader.read_all())
    for batch in batches:
        for line in lines(len(written), batch):
            file.append(line + b"\n")
            written.append(line)
        if data.draw(st.booleans()) or len(written) - len(read) > 40:  # the files hold 104; slower readers lose lines
            read += reader.read_new()
    read += reader.read_new()
    reader.close()
    assert read == written


def test_a_line_that_came_late_to_a_renamed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"a\n")
    reader = LogReader(path)
    assert list(reader.read_all()) == [b"a"]
    late = path.open("ab", buffering=0)
    path.rename(tmp_path / "server.log.1")
    path.write_bytes(b"b\n")
    assert list(reader.read_new()) == [b"b"]
    late.write(b"late\n")
    late.close()
    assert list(reader.read_new()) == [b"late"]
    reader.close()
