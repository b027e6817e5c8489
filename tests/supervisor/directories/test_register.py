"""The register of child processes: what the next supervisor reads of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.directories import register
from supervisor.directories.register import ChildFacts, ProcessRegister, read_register, start_ticks_of


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until the end of the test."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


def test_a_process_is_known_with_its_start_time(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    path = tmp_path / "children.json"
    first = ProcessRegister(path)
    first.add("gateway/0", process.pid)
    first.note(process.pid, ChildFacts("gateway/0", 3, n_starts=2, is_announced=True))
    (read,) = read_register(path)
    assert (read.facts.incarnation, read.facts.n_starts, read.facts.is_announced) == (3, 2, True)
    assert (read.pid, read.start_ticks, read.is_gone) == (process.pid, start_ticks_of(process.pid), False)
    process.kill()
    process.wait()
    assert read.is_gone


def test_another_process_with_the_same_id_is_not_the_child(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    ProcessRegister(path).add("gateway/0", os.getpid())
    content = json.loads(path.read_bytes())
    content["children"][0]["start_ticks"] -= 1
    path.write_text(json.dumps(content))
    assert read_register(path)[0].is_gone


def test_an_entry_of_a_dead_incarnation_stays_until_the_next_one_exists(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "children.json"
    known = ProcessRegister(path)
    known.add("gateway/0", os.getpid())
    known.note(os.getpid(), ChildFacts("gateway/0", 1, died_of="crashed"))
    assert [child.facts.died_of for child in ProcessRegister(path).children] == ["crashed"]
    known.add("gateway/0", process.pid)
    known.note(process.pid, ChildFacts("gateway/0", 2))
    assert [(child.pid, child.facts.incarnation) for child in read_register(path)] == [(process.pid, 2)]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"boot": 1, "children": []}', b"\xff"])
def test_a_damaged_register_names_nobody(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "children.json"
    path.write_bytes(content)
    assert read_register(path) == []


def test_a_register_of_another_boot_names_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "children.json"
    ProcessRegister(path).add("gateway/0", os.getpid())
    monkeypatch.setattr(register, "boot_id", lambda: "another")
    assert read_register(path) == []
