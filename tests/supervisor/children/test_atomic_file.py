"""What a full disk refuses waits in memory and is written when there is room."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.children.atomic_file import WholeFile
from supervisor.children.orphans import BirthRegister
from supervisor.children.rendezvous import Incarnations


def fill_disk(path: Path) -> Path:
    """Every write of this file meets a full disk from now on, until the path that is returned has been removed."""
    full = path.with_suffix(".new")
    full.unlink(missing_ok=True)
    full.symlink_to("/dev/full")
    return full


def test_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = WholeFile(tmp_path / "f.json")
    file.put(b"long content")
    file.put(b"short")
    assert (tmp_path / "f.json").read_bytes() == b"short"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.json"]


def test_a_full_disk_keeps_the_old_content_and_gets_the_newest_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.json"
    file = WholeFile(path)
    file.put(b"one")
    full = fill_disk(path)
    for content in (b"two", b"three"):
        file.put(content)
    file.catch_up()
    assert (path.read_bytes(), file.is_behind) == (b"one", True)
    full.unlink()
    file.catch_up()
    assert (path.read_bytes(), file.is_behind) == (b"three", False)
    path.write_bytes(b"touched")
    file.catch_up()
    assert path.read_bytes() == b"touched"  # nothing waits any more
    said = capsys.readouterr()
    assert (said.out + said.err).count("No space left on device") == 1


def test_lives_are_counted_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "incarnations.json"
    incarnations = Incarnations(path)
    assert incarnations.next("gateway/0") == 1
    full = fill_disk(path)
    assert [incarnations.next("gateway/0"), incarnations.next("gateway/0")] == [2, 3]
    full.unlink()
    incarnations.file.catch_up()
    assert Incarnations(path).next("gateway/0") == 4


def test_children_are_known_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    register = BirthRegister(path)
    full = fill_disk(path)
    register.born("gateway/0", os.getpid())
    assert not path.exists()
    full.unlink()
    register.file.catch_up()
    assert [child["pid"] for child in json.loads(path.read_bytes())["children"]] == [os.getpid()]
