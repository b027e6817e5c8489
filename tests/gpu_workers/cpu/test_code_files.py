"""Machine code in files: what was kept is found, and what is damaged or could be another user's is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpu_workers.cpu import code_files
from gpu_workers.cpu.code_files import CodeFiles


def test_what_was_kept_is_found_by_its_source_alone(tmp_path: Path) -> None:
    files = CodeFiles(tmp_path / "cache" / "kernels")
    assert files.read("a source") is None
    files.keep("a source", b"code")
    assert CodeFiles(tmp_path / "cache" / "kernels").read("a source") == b"code"
    assert files.read("another source") is None


@pytest.mark.parametrize("at", [0, 31, 32, -1])
def test_a_damaged_file_is_not_used_and_written_anew(tmp_path: Path, at: int) -> None:
    files = CodeFiles(tmp_path)
    files.keep("a source", b"code")
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert files.read("a source") is None
    files.keep("a source", b"code")
    assert files.read("a source") == b"code"


@pytest.mark.parametrize("n_bytes", [0, 1, 31, 32, 35])
def test_a_file_that_was_cut_is_not_used(tmp_path: Path, n_bytes: int) -> None:
    files = CodeFiles(tmp_path)
    files.keep("a source", b"code")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:n_bytes])
    assert files.read("a source") is None


def test_the_file_of_another_source_is_not_used(tmp_path: Path) -> None:
    files = CodeFiles(tmp_path)
    files.keep("a source", b"code")
    (first,) = tmp_path.iterdir()
    files.keep("another", b"other code")
    (second,) = set(tmp_path.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert files.read("another") is None


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_to_which_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    files = CodeFiles(tmp_path)
    files.keep("a source", b"code")
    os.chmod(tmp_path, mode)
    assert files.read("a source") is None
    files.keep("another source", b"code")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = CodeFiles(tmp_path)
    files.keep("a source", b"code")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert files.read("a source") is None


def test_nothing_is_kept_where_that_cannot_be_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    files = CodeFiles(tmp_path / "file" / "kernels")
    files.keep("a source", b"code")
    assert files.read("a source") is None


def test_the_oldest_files_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_files, "_MOST_FILES", 4)
    files = CodeFiles(tmp_path)
    for number in range(4):
        files.keep(f"source {number}", b"code")
        for path in tmp_path.iterdir():
            os.utime(path, (path.stat().st_atime - 10, path.stat().st_mtime - 10))
    files.keep("source 4", b"code")
    assert [files.read(f"source {number}") is not None for number in range(5)] == [False, False, True, True, True]
