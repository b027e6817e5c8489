"""What the parent keeps of the run directory's files: their newest content, whatever the disk has."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.directories.atomic_file import AtomicFile, restore_files
from supervisor.directories.register import ProcessRegister, read_register
from supervisor.directories.rendezvous import Incarnations
from supervisor.parent.link import KEEP, ParentLink, pack_exits
from supervisor.parent.memory_copy import COPIED, MemoryCopy, keep_copies, read_newest
from tests.support.supervisor.full_disk import fill_disk


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("copy")
    yield fd
    os.close(fd)


@pytest.fixture
def link() -> Iterator[ParentLink]:
    """The link of a first supervisor, whose parent keeps nothing yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(pack_exits({}))
    link = ParentLink(theirs)
    yield link
    for kept in link.kept.values():
        os.close(kept.fd)
    ours.close()
    theirs.close()


def next_supervisor(link: ParentLink, path: Path) -> None:
    """As after a death: the next supervisor has the descriptors of the last one, and nothing else of it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for name, kept in link.kept.items():
        socket.send_fds(ours, [KEEP + f"{name} ".encode()], [kept.fd])
    ours.send(pack_exits({}))
    for kept in link.kept.values():
        os.close(kept.fd)
    link.kept = ParentLink(theirs).kept
    keep_copies(link, path)
    ours.close()
    theirs.close()


def test_the_next_supervisor_knows_what_a_full_disk_has_refused(link: ParentLink, tmp_path: Path) -> None:
    keep_copies(link, tmp_path)
    children, numbers = tmp_path / "children.json", tmp_path / "incarnations.json"
    register, incarnations = ProcessRegister(children), Incarnations(numbers)
    assert incarnations.next("gateway/0") == 1
    for path in (children, numbers):
        fill_disk(path)
    register.add("gateway/0", os.getpid())
    assert incarnations.next("gateway/0") == 2
    assert not children.exists()
    next_supervisor(link, tmp_path)
    assert [child.pid for child in read_register(children)] == [os.getpid()]
    assert Incarnations(numbers).next("gateway/0") == 3


def test_files_that_somebody_has_removed_are_known(link: ParentLink, tmp_path: Path) -> None:
    keep_copies(link, tmp_path)
    for name in COPIED:
        AtomicFile(tmp_path / name).write(name.encode())
        (tmp_path / name).unlink()
    next_supervisor(link, tmp_path)
    assert [read_newest(tmp_path / name, bytes) for name in COPIED] == [name.encode() for name in COPIED]


def test_a_file_that_another_program_has_written_counts(link: ParentLink, tmp_path: Path) -> None:
    keep_copies(link, tmp_path)
    path = tmp_path / "children.json"
    AtomicFile(path).write(b"ours")
    older_release = path.with_suffix(".old")
    older_release.write_bytes(b"newer")
    older_release.rename(path)
    next_supervisor(link, tmp_path)
    assert read_newest(path, bytes) == b"newer"


def unless_damaged(content: bytes) -> bytes | None:
    """As a reader of a file that has a format."""
    return None if content == b"garbage" else content


def test_what_cannot_be_read_is_passed_over(link: ParentLink, tmp_path: Path) -> None:
    keep_copies(link, tmp_path)
    path = tmp_path / "children.json"
    AtomicFile(path).write(b"ours")
    path.write_bytes(b"garbage")
    next_supervisor(link, tmp_path)
    assert read_newest(path, unless_damaged) == b"ours"


@pytest.mark.parametrize("name", COPIED)
def test_a_file_that_was_removed_or_changed_is_written_again(link: ParentLink, tmp_path: Path, name: str) -> None:
    keep_copies(link, tmp_path)
    path = tmp_path / name
    AtomicFile(path).write(b"ours")
    restore_files(tmp_path)
    for harm in (path.unlink, lambda: path.write_bytes(b"garbage")):
        harm()
        restore_files(tmp_path)
        assert path.read_bytes() == b"ours"
        harm()
        next_supervisor(link, tmp_path)
        restore_files(tmp_path)
        assert path.read_bytes() == b"ours"


def test_what_a_full_disk_has_refused_is_written_as_soon_as_there_is_room(link: ParentLink, tmp_path: Path) -> None:
    keep_copies(link, tmp_path)
    path = tmp_path / "supervisor.pid"
    AtomicFile(path).write(b"1")
    full = fill_disk(path)
    AtomicFile(path).write(b"2")
    for _ in range(2):
        restore_files(tmp_path)
        assert path.read_bytes() == b"1"
    full.unlink()
    restore_files(tmp_path)
    assert path.read_bytes() == b"2"


def test_a_write_that_was_cut_by_a_death_leaves_the_one_before(fd: int, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    copy = MemoryCopy(fd, path)
    copy.write(b"one")
    copy.write(b"two, the last one")
    assert MemoryCopy(fd, path).content == b"two, the last one"
    whole = os.pread(fd, 1 << 10, 0)
    os.pwrite(fd, whole.replace(b"last", b"lost"), 0)
    assert MemoryCopy(fd, path).content == b"one"


def test_without_a_parent_there_are_no_copies(tmp_path: Path) -> None:
    keep_copies(ParentLink(), tmp_path)
    AtomicFile(tmp_path / "children.json").write(b"x")
    (tmp_path / "children.json").unlink()
    assert read_newest(tmp_path / "children.json", bytes) is None
