"""The file of the audit log: whole lines from many writers, private, of bounded size."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from messages.access import audit_log
from messages.access.audit_log import AuditRecord, Door, append_audit, utc_text


def record(number: int = 0, **fields: object) -> AuditRecord:
    return AuditRecord(utc_text(0.0), Door.COMMAND, "keys add", "done", parameters={"number": number, **fields})


def lines_of(path: Path) -> list[AuditRecord]:
    return [msgspec.json.decode(line, type=AuditRecord) for line in path.read_bytes().splitlines()]


def numbers_of(*paths: Path) -> list[int]:
    return sorted(one.parameters["number"] for path in paths for one in lines_of(path))


def test_a_record_is_one_private_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    append_audit(path, record(1))
    append_audit(path, record(2, text="a\nb"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert numbers_of(path) == [1, 2]
    first = path.read_text().splitlines()[0]
    assert first == (
        '{"time":"1970-01-01T00:00:00.000Z","door":"command","action":"keys add","result":"done","parameters":{"number":1}}'
    )


def test_many_writers_mix_no_lines_and_lose_none_when_files_are_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES", 5_000)
    path, n = tmp_path / "audit.log", 150
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: append_audit(path, record(number)), range(n)))
    files = [path, *tmp_path.glob("audit.log.*")]
    assert numbers_of(*(file for file in files)) == list(range(n))
    assert len(files) == 4
    assert max(file.stat().st_size for file in files) < 5_000 + 8 * 200


def test_the_oldest_file_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES", 200)
    path = tmp_path / "audit.log"
    for number in range(12):
        append_audit(path, record(number))
    assert sorted(file.name for file in tmp_path.glob("audit.log*")) == [
        "audit.log", "audit.log.1", "audit.log.2", "audit.log.3", "audit.log.4"
    ]  # fmt: skip
    assert numbers_of(path) == [11]
    assert numbers_of(tmp_path / "audit.log.4") == [7]


def test_a_writer_that_was_stopped_while_it_renames_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES", 200)
    monkeypatch.setattr(audit_log, "_LOCK_S", 0.05)
    path = tmp_path / "audit.log"
    append_audit(path, record(0))
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    append_audit(path, record(1))
    assert numbers_of(path) == [0, 1]
    os.close(lock)
    append_audit(path, record(2))
    assert numbers_of(path) == [2]


def test_parameters_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    append_audit(path, record(0, text="x" * 10_000))
    (line,) = lines_of(path)
    assert (line.parameters, line.detail, line.action) == ({}, "left out: too long", "keys add")


@pytest.mark.timeout(60)
def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        append_audit(path, record(1))
