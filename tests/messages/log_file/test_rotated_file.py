"""A log file stays within its bytes, and lines of several processes never mix."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from pathlib import Path

import pytest

from messages.log_file.rotated_file import LEAST_BYTES, N_OLD, LogFile, RotatedFile, files_of

LINE = b"x" * 999 + b"\n"
ONE_FILE_BYTES = LEAST_BYTES // (N_OLD + 1)


def write_many(path: Path, letter: bytes, n_lines: int) -> None:
    file = RotatedFile(LogFile(str(path), 1))
    for number in range(n_lines):
        file.append(letter * 500 + b" %d\n" % number)


def test_all_files_together_stay_within_their_bytes_and_keep_the_newest_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    file = RotatedFile(LogFile(str(path), 0))
    for number in range(3 * LEAST_BYTES // len(LINE)):
        assert file.append(b"%06d" % number + LINE[6:])
    there = [one for one in files_of(path) if one.exists()]
    assert sum(one.stat().st_size for one in there) <= LEAST_BYTES
    assert len(there) == N_OLD + 1
    lines = b"".join(one.read_bytes() for one in reversed(there)).split(b"\n")[:-1]
    numbers = [int(line[:6]) for line in lines]
    assert numbers == list(range(numbers[0], 3 * LEAST_BYTES // len(LINE)))
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(path, letter, 400)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    lines = [line for one in files_of(path) if one.exists() for line in one.read_bytes().splitlines()]
    texts = [line.split()[0] for line in lines]
    assert set(texts) == {letter * 500 for letter in (b"a", b"b", b"c")}
    assert len(lines) == 1200  # 620 KB fit into the files


def test_a_process_that_is_stopped_while_it_renames_lets_the_file_grow_to_a_bound_only(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    file = RotatedFile(LogFile(str(path), 0))
    file.append(LINE)
    held = os.open(path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    taken = [file.append(LINE) for _ in range(4 * ONE_FILE_BYTES // len(LINE))]
    assert not taken[-1], "further lines are refused"
    assert path.stat().st_size <= 2 * ONE_FILE_BYTES + len(LINE)
    os.close(held)
    assert file.append(LINE)
    assert path.read_bytes() == LINE


@pytest.mark.parametrize("place", ["/dev/full", "/nowhere/server.log"])
def test_a_full_disk_or_a_missing_directory_is_an_error_of_this_line(place: str) -> None:
    with pytest.raises(OSError, match="No s"):
        RotatedFile(LogFile(place, 0)).append(LINE)


@pytest.mark.timeout(60)
def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        RotatedFile(LogFile(str(path), 0)).append(LINE)
