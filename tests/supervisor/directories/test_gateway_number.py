"""A changed number of gateways is known as long as a request from before it may be asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from supervisor.directories.gateway_number import GATEWAYS_FILE, StartTime, note_gateways

KEEP_S = 100.0
DAY_S = 86_400.0


def changed(folder: Path, gateways: int, now_s: float, *, wall_s: float | None = None, boot: str = "first") -> bool:
    """A start at this time of the clock since boot."""
    return note_gateways(folder, gateways, KEEP_S, StartTime(1e9 + now_s if wall_s is None else wall_s, boot, now_s))


def test_a_change_is_known_until_its_requests_are_forgotten(tmp_path: Path) -> None:
    assert not changed(tmp_path, 1, 1000.0)
    (tmp_path / "journal-0").mkdir()
    assert not changed(tmp_path, 1, 1001.0)
    assert changed(tmp_path, 2, 1002.0)
    assert changed(tmp_path, 2, 1050.0)
    assert changed(tmp_path, 2, 1100.0), "the starts do not count anew"
    assert not changed(tmp_path, 2, 1103.0)
    assert changed(tmp_path, 1, 1104.0)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_a_jump_of_the_wall_clock_does_not_hide_a_change(tmp_path: Path, jump_s: float) -> None:
    changed(tmp_path, 3, 1000.0)
    assert changed(tmp_path, 2, 1001.0)
    assert changed(tmp_path, 2, 1010.0, wall_s=1e9 + jump_s)
    assert not changed(tmp_path, 2, 1102.0)


def test_time_without_power_does_not_count(tmp_path: Path) -> None:
    """Nor does it in the journals, whose requests are kept so much longer."""
    changed(tmp_path, 3, 1000.0)
    assert changed(tmp_path, 2, 1001.0)
    assert changed(tmp_path, 2, 1041.0)
    assert changed(tmp_path, 2, 5.0, wall_s=1e9 + DAY_S, boot="second")
    assert changed(tmp_path, 2, 60.0, boot="second"), "40 s of the first boot and 55 of this one"
    assert not changed(tmp_path, 2, 70.0, boot="second")


def test_journals_of_an_unknown_number_count_as_changed(tmp_path: Path) -> None:
    changed(tmp_path, 3, 1000.0)
    (tmp_path / "journal-0").mkdir()
    file = tmp_path / GATEWAYS_FILE
    whole = file.read_bytes()
    for damaged in (b"", b"\0damaged", whole[:-2], None):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        assert changed(tmp_path, 2, 1001.0), damaged
    assert changed(tmp_path, 2, 1050.0), "it is known from the file now"


def test_no_flipped_bit_hides_a_change(tmp_path: Path) -> None:
    changed(tmp_path, 3, 1000.0)
    (tmp_path / "journal-0").mkdir()
    file = tmp_path / GATEWAYS_FILE
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            assert changed(tmp_path, 2, 1001.0), (place, bit)


def test_a_file_of_the_last_release_is_read_by_the_wall_clock(tmp_path: Path) -> None:
    (tmp_path / "journal-0").mkdir()
    file = tmp_path / GATEWAYS_FILE
    file.write_bytes(b'{"number":2,"changed_s":1000001000.0}')
    assert changed(tmp_path, 2, 1050.0)
    assert not changed(tmp_path, 2, 1101.0), "from here on by the clock since boot"
    file.write_bytes(b'{"number":2,"changed_s":0.0}')
    assert not changed(tmp_path, 2, 1102.0)
    assert msgspec.json.decode(file.read_bytes())["changed_s"] == 0.0, "the last release may read it again"
