"""A journal that another release has written: it is never deleted unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.journal.frames import Frame, Kind, encode_frame, read_frames
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.segments import read_segment, segments_in
from messages.errors import ConfigError
from tests.support.gateway.journal_file import opened, read_again, request_blob, unwanted, written
from tests.support.gateway.journal_writer import spec_of

SALT = b"the salt"


async def one_request(path: Path) -> None:
    journal = opened(path)
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    await written(journal)
    await journal.close()


def give_version(folder: Path, version: bytes) -> bytes:
    """Let all frames of the only file say that they have this version; returns the file's bytes."""
    (segment,) = segments_in(folder)
    data = read_segment(segment).replace(b"\xf7TJ2", b"\xf7TJ" + version)
    segment.path.write_bytes(data)
    return data


async def test_another_version_of_the_format_is_refused_by_name_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "journal-0"
    await one_request(folder)
    data = give_version(folder, b"3")
    with pytest.raises(ConfigError, match=r"got version '3' of the format in .*\.log"):
        await read_again(folder)
    (segment,) = segments_in(folder)
    assert read_segment(segment) == data
    segment.path.write_bytes(data.replace(b"\xf7TJ3", b"\xf7TJ2"))
    assert [one.spec.request for one in await read_again(folder)] == [spec_of(1).request]


async def test_a_retired_gateways_journal_of_another_version_is_not_adopted_and_kept(tmp_path: Path) -> None:
    await one_request(tmp_path / "journal-1")
    data = give_version(tmp_path / "journal-1", b"3")
    journal = Journal(str(tmp_path / "journal-0"), gateways=1)
    assert journal.open() == []
    journal.start()
    journal.adopt_all()
    await written(journal)
    await journal.close()
    (segment,) = segments_in(tmp_path / "journal-1")
    assert read_segment(segment) == data


async def test_one_flipped_version_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "journal-0"
    await one_request(folder)
    (segment,) = segments_in(folder)
    data = read_segment(segment)
    segment.path.write_bytes(data[: data.rindex(b"\xf7TJ2")].replace(b"\xf7TJ2", b"\xf7TJ3"))  # nothing but its header
    assert await read_again(folder) == []


def test_an_entry_of_a_kind_that_a_later_release_has_is_skipped() -> None:
    before = encode_frame(Kind.FORGET, 1, 1.0, b"", SALT)
    later = encode_frame(max(Kind) + 1, 2, 2.0, b"of a later release", SALT)  # type: ignore[arg-type]
    after = encode_frame(Kind.FORGET, 3, 3.0, b"", SALT)
    found = [one.number if isinstance(one, Frame) else None for one in read_frames(before + later + after, SALT)]
    assert found == [1, None, 3]
