"""A place of the disk file gives what was written there for this file, or nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from pathlib import Path

import numpy as np
import pytest

from gpu_workers.disk.disk_file import DiskFile, FileEnd, Unreadable
from gpu_workers.disk.place_tag import BLOCK_BYTES, TAG_BYTES, Content, place_bytes
from tests.support.disk.faulty_disk import DiskFault, FaultyDisk

_PAGE_BYTES, _N_PLACES = 10_000, 8
_FINGERPRINT = bytes(range(32))


def _open(path: Path, fingerprint: bytes = _FINGERPRINT, disk: FaultyDisk | None = None) -> DiskFile:
    return DiskFile(path / "pages", fingerprint, _PAGE_BYTES, _N_PLACES, disk)


def _page(seed: int) -> np.ndarray:
    return np.frombuffer(random.Random(seed).randbytes(_PAGE_BYTES), np.uint8)


def _read(file: DiskFile, place: int, content_hash: int) -> tuple[object, bytes]:
    page = np.zeros(_PAGE_BYTES, np.uint8)
    return file.read(place, content_hash, page), page.tobytes()


def test_a_page_comes_back_with_the_checksum_of_the_host_tier(tmp_path: Path) -> None:
    file = _open(tmp_path)
    file.write(3, Content(2**64 - 1), 2**63 + 5, _page(1))
    assert _read(file, 3, 2**64 - 1) == (2**63 + 5, _page(1).tobytes())


@pytest.mark.parametrize(("place", "content_hash"), [(3, 8), (2, 7), (4, 7)])
def test_another_content_or_place_is_missing(tmp_path: Path, place: int, content_hash: int) -> None:
    file = _open(tmp_path)
    file.write(3, Content(7), 0, _page(1))
    assert _read(file, place, content_hash)[0] is Unreadable.MISSING


def test_the_next_process_finds_the_pages(tmp_path: Path) -> None:
    file = _open(tmp_path)
    file.write(3, Content(7), 5, _page(1))
    file.close()
    assert _read(_open(tmp_path), 3, 7) == (5, _page(1).tobytes())


def test_a_file_of_another_model_is_thrown_away(tmp_path: Path) -> None:
    file = _open(tmp_path)
    file.write(3, Content(7), 5, _page(1))
    file.close()
    other = _open(tmp_path, bytes(32))
    assert (tmp_path / "pages").stat().st_size == BLOCK_BYTES
    other.close()
    assert _read(_open(tmp_path), 3, 7)[0] is Unreadable.MISSING


@pytest.mark.parametrize("at", range(0, 76, 4))
def test_a_file_with_a_damaged_header_is_thrown_away(tmp_path: Path, at: int) -> None:
    file = _open(tmp_path)
    file.write(3, Content(7), 5, _page(1))
    file.close()
    with (tmp_path / "pages").open("r+b") as raw:
        raw.seek(at)
        (byte,) = raw.read(1)
        raw.seek(at)
        raw.write(bytes([byte ^ 4]))
    assert _read(_open(tmp_path), 3, 7)[0] is Unreadable.MISSING


def test_a_page_of_a_file_that_was_begun_anew_is_missing_even_if_its_bytes_come_back(tmp_path: Path) -> None:
    file = _open(tmp_path)
    file.write(0, Content(7), 5, _page(1))
    old = (tmp_path / "pages").read_bytes()[BLOCK_BYTES:]
    file.clear()
    with (tmp_path / "pages").open("r+b") as raw:
        raw.seek(BLOCK_BYTES)
        raw.write(old)
    assert _read(file, 0, 7)[0] is Unreadable.MISSING


@pytest.mark.parametrize("n_bytes", [0, 1, 4096, 8192, place_bytes(_PAGE_BYTES) - 4096])
def test_a_page_that_was_half_overwritten_is_not_found(tmp_path: Path, n_bytes: int) -> None:
    """The first bytes are those of a later write, as when the process has died meanwhile."""
    file = _open(tmp_path)
    file.write(0, Content(7), 5, _page(1))
    before = (tmp_path / "pages").read_bytes()
    file.write(0, Content(8), 6, _page(2))
    after = (tmp_path / "pages").read_bytes()
    cut = BLOCK_BYTES + n_bytes
    (tmp_path / "pages").write_bytes(after[:cut] + before[cut:])
    assert not isinstance(_read(file, 0, 8)[0], int)
    found, page = _read(file, 0, 7)
    assert found in (Unreadable.MISSING, Unreadable.DAMAGED) or (found, page) == (5, _page(1).tobytes())


def test_every_flipped_bit_of_a_place_is_noticed(tmp_path: Path) -> None:
    file = _open(tmp_path)
    file.write(0, Content(7), 5, _page(1))
    rng = random.Random(4)
    for at in [*range(TAG_BYTES), *(rng.randrange(TAG_BYTES, TAG_BYTES + _PAGE_BYTES) for _ in range(50))]:
        with (tmp_path / "pages").open("r+b") as raw:
            raw.seek(BLOCK_BYTES + at)
            (byte,) = raw.read(1)
            raw.seek(BLOCK_BYTES + at)
            raw.write(bytes([byte ^ (1 << rng.randrange(8))]))
        found, _ = _read(file, 0, 7)
        assert found in (Unreadable.MISSING, Unreadable.DAMAGED)
        file.write(0, Content(7), 5, _page(1))


def test_a_short_read_gives_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk(random.Random(1), 0.0, (DiskFault.SHORT_READ,))
    file = _open(tmp_path, disk=disk)
    file.write(0, Content(7), 5, _page(1))
    disk.probability = 1.0
    assert _read(file, 0, 7)[0] is Unreadable.SHORT


@pytest.mark.parametrize("fault", [DiskFault.FULL, DiskFault.SHORT_WRITE])
def test_a_full_disk_is_an_error_and_gives_nothing_later(tmp_path: Path, fault: DiskFault) -> None:
    disk = FaultyDisk(random.Random(1), 0.0, (fault,))
    file = _open(tmp_path, disk=disk)
    file.write(0, Content(7), 5, _page(1))
    disk.probability = 1.0
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.write(0, Content(8), 5, _page(2))
    disk.probability = 0.0
    assert not isinstance(_read(file, 0, 8)[0], int)


def test_a_second_process_cannot_have_the_file(tmp_path: Path) -> None:
    file = _open(tmp_path)
    with pytest.raises(BlockingIOError):
        _open(tmp_path)
    file.close()
    _open(tmp_path).close()


def test_a_file_that_is_removed_is_gone_and_can_be_begun_anew(tmp_path: Path) -> None:
    file = _open(tmp_path)
    file.close(FileEnd.REMOVED)
    assert not (tmp_path / "pages").exists()
    _open(tmp_path).close()
    assert (tmp_path / "pages").stat().st_mode & 0o777 == 0o600


def test_a_file_that_its_last_process_removes_meanwhile_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def remove_once(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        (tmp_path / "pages").unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_once)
    _open(tmp_path)
    assert (tmp_path / "pages").exists()


def test_a_file_system_without_direct_access_is_used_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = os.open

    def refuse_direct(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return open_file(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse_direct)
    file = _open(tmp_path)
    assert not file.is_direct
    file.write(0, Content(7), 5, _page(1))
    assert _read(file, 0, 7)[0] == 5


def test_a_file_system_that_refuses_the_first_direct_write_is_used_through_the_page_cache(tmp_path: Path) -> None:
    class RefusesDirect(FaultyDisk):
        def write(self, descriptor: int, buffer: np.ndarray, offset: int) -> int:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return super().write(descriptor, buffer, offset)

    file = _open(tmp_path, disk=RefusesDirect(random.Random(1), 0.0))
    assert not file.is_direct
    file.write(0, Content(7), 5, _page(1))
    assert _read(file, 0, 7)[0] == 5


@pytest.mark.parametrize(("end", "is_vouched", "is_kept"), [
    (FileEnd.IN_ORDER, False, True), (FileEnd.LEFT, True, True), (FileEnd.LEFT, False, False), (FileEnd.REMOVED, True, False),
])  # fmt: skip
def test_a_file_is_kept_if_its_process_has_ended_in_order_or_somebody_vouches(
    tmp_path: Path, end: FileEnd, is_vouched: bool, is_kept: bool
) -> None:
    file = _open(tmp_path)
    file.write(3, Content(7), 5, _page(1))
    file.close(end)
    again = DiskFile(tmp_path / "pages", _FINGERPRINT, _PAGE_BYTES, _N_PLACES, is_vouched=is_vouched)
    assert again.is_new is not is_kept
    assert (_read(again, 3, 7)[0] == 5) is is_kept
    again.close()
    assert DiskFile(tmp_path / "pages", _FINGERPRINT, _PAGE_BYTES, _N_PLACES, is_vouched=False).is_new, "it is in use again"


def test_tags_say_what_is_where_from_the_last_place_on(tmp_path: Path) -> None:
    file, tokens = _open(tmp_path), bytes(range(64))
    for place in (0, 2, 3, 5):
        file.write(place, Content(10 + place, 9, tokens), 5, _page(1))
    file.write(4, Content(14), 5, _page(1))  # by a scheduler that tells no tokens
    found = [(place, Content(10 + place, 9, tokens)) for place in (5, 3, 2, 0)]
    assert file.find(_N_PLACES, 100, 60.0, lambda: 0.0) == (0, found)
    assert file.find(_N_PLACES, 2, 60.0, lambda: 0.0) == (3, found[:2])
    assert file.find(3, 2, 60.0, lambda: 0.0) == (0, found[2:])
    clock = iter(range(100))
    assert file.find(_N_PLACES, 100, 1.5, lambda: float(next(clock))) == (4, found[:1]), "the time is over"
    with (tmp_path / "pages").open("r+b") as raw:
        raw.seek(BLOCK_BYTES + 5 * place_bytes(_PAGE_BYTES) + 100)
        raw.write(b"\xff")
    assert file.find(_N_PLACES, 100, 60.0, lambda: 0.0) == (0, found[1:])
    file.clear()
    assert file.find(_N_PLACES, 100, 60.0, lambda: 0.0) == (0, [])
