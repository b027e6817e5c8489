"""Files that are read again: after each change, also of their mode, and after what the system has refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from messages.access.followed_files import FollowedFiles
from messages.access.private_file import FileRefused, read_private
from messages.errors import ConfigError


def test_they_are_due_once_and_after_each_change(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    files = FollowedFiles([path, tmp_path / "other"])
    assert [files.are_due(), files.are_due()] == [True, False], "also where there is none yet"
    path.write_bytes(b"1")
    assert [files.are_due(), files.are_due()] == [True, False]
    path.chmod(0o640)
    assert [files.are_due(), files.are_due()] == [True, False], "an operator has mended its mode"
    path.unlink()
    assert [files.are_due(), files.are_due()] == [True, False]


def test_what_the_system_refuses_is_tried_again_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"1")
    files = FollowedFiles([path])

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as context:
        context.setattr(os, "open", refuse)
        for is_new in (True, False):
            assert files.are_due()
            with pytest.raises(FileRefused) as refusal:
                read_private(path)
            assert files.were_not_read(refusal.value) is is_new
    assert files.are_due()
    assert read_private(path) == b"1"
    files.were_read()
    assert not files.are_due()
    assert files.were_not_read(refusal.value), "it is another failure"


def test_what_cannot_be_used_is_tried_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"1")
    files = FollowedFiles([path])
    assert files.are_due()
    assert files.were_not_read(ConfigError("expected JSON"))
    assert not files.are_due()
    path.write_bytes(b"22")
    assert files.are_due()
    assert not files.were_not_read(ConfigError("expected JSON"))
