"""What a full disk refuses waits in memory and is written when there is room."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.directories.atomic_file import AtomicFile
from supervisor.directories.register import ProcessRegister
from supervisor.directories.rendezvous import Incarnations
from tests.support.supervisor.full_disk import fill_disk


def test_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = AtomicFile(tmp_path / "f.json")
    file.write(b"long content")
    file.write(b"short")
    assert (tmp_path / "f.json").read_bytes() == b"short"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.json"]


def test_a_full_disk_keeps_the_old_content_and_gets_the_newest_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.json"
    file = AtomicFile(path)
    file.write(b"one")
    full = fill_disk(path)
    for content in (b"two", b"three"):
        file.write(content)
    file.retry()
    assert (path.read_bytes(), file.is_pending) == (b"one", True)
    full.unlink()
    file.retry()
    assert (path.read_bytes(), file.is_pending) == (b"three", False)
    path.write_bytes(b"touched")
    file.retry()
    assert path.read_bytes() == b"touched"  # nothing waits any more
    said = capsys.readouterr()
    assert (said.out + said.err).count("No space left on device") == 1


def test_incarnations_are_counted_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "incarnations.json"
    incarnations = Incarnations(path)
    assert incarnations.next("gateway/0") == 1
    full = fill_disk(path)
    assert [incarnations.next("gateway/0"), incarnations.next("gateway/0")] == [2, 3]
    full.unlink()
    incarnations.file.retry()
    assert Incarnations(path).next("gateway/0") == 4


def test_children_are_known_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    register = ProcessRegister(path)
    full = fill_disk(path)
    register.add("gateway/0", os.getpid())
    assert not path.exists()
    full.unlink()
    register.file.retry()
    assert [child["pid"] for child in json.loads(path.read_bytes())["children"]] == [os.getpid()]
