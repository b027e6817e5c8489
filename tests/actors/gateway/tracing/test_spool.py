"""Records of ended requests in files: a death loses nothing that was written, bounds hold, and files do not stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.gateway.tracing.spool import Spool

ONE, TWO, THREE = b"1" * 8, b"2" * 8, b"3" * 8


def spool_in(folder: Path, incarnation: int = 1, gateway: int = 0, most_waiting: int = 100, most_in_file: int = 50) -> Spool:
    return Spool(folder, gateway, incarnation, most_waiting, most_in_file)


def lines_of(spool: Spool) -> list[tuple[bytes, bytes]]:
    return [line for file in list(spool.complete) for line in file.read()]


def test_what_a_killed_process_wrote_is_there_for_the_next_one(tmp_path: Path) -> None:
    first = spool_in(tmp_path)
    assert first.add(ONE, b"a\n")
    assert first.add(TWO, b"")
    second = spool_in(tmp_path, incarnation=2)  # the first one was killed: it has closed nothing
    second.find(1)
    assert lines_of(second) == [(ONE, b"a\n"), (TWO, b"")]
    assert second.known == {ONE, TWO}
    assert second.n_waiting == 2


@pytest.mark.parametrize("n_cut", range(1, 12))
def test_a_line_that_a_death_has_cut_off_is_left_out(tmp_path: Path, n_cut: int) -> None:
    first = spool_in(tmp_path)
    first.add(ONE, b"{}")
    first.add(TWO, b"{}")
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - n_cut)
    second = spool_in(tmp_path, incarnation=2)
    second.find(1)
    assert second.known == {ONE}


def test_files_are_read_in_the_order_of_their_writing_and_go(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, most_waiting=10_000, most_in_file=1)
    for number in range(12):
        spool.add(b"%08d" % number, b"{}")
    found = spool_in(tmp_path, incarnation=2)
    found.find(1)
    assert [int(span_id) for span_id, _ in lines_of(found)] == list(range(12))
    while found.complete:
        found.done(found.complete[0])
    assert found.n_waiting == 0
    assert not list(tmp_path.iterdir())


def test_more_than_may_wait_is_not_kept(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, most_waiting=1)
    assert spool.add(ONE, b"{}")
    assert not spool.add(TWO, b"{}")
    spool.seal()
    spool.done(spool.complete[0])
    assert spool.add(TWO, b"{}")


def test_a_full_disk_costs_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, written, real = spool_in(tmp_path), [0], os.write

    def full(fd: int, data: bytes) -> int:
        written[0] += 1
        if written[0] == 2:
            return real(fd, data[:5])
        if written[0] == 3:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", full)
    taken = [spool.add(one, b"{}") for one in (ONE, TWO, THREE, ONE)]
    spool.seal()
    assert taken == [True, False, False, True]
    assert [span_id for span_id, _ in lines_of(spool)] == [ONE, ONE]


def test_gateway_0_takes_over_from_gateways_that_do_not_exist_any_more(tmp_path: Path) -> None:
    for gateway in range(3):
        spool_in(tmp_path, gateway=gateway).add(b"%08d" % gateway, b"{}")
    zero, one = spool_in(tmp_path, incarnation=2), spool_in(tmp_path, incarnation=2, gateway=1)
    zero.find(2)
    one.find(2)
    assert [int(span_id) for span_id in sorted(zero.known)] == [0, 2]
    assert [int(span_id) for span_id in sorted(one.known)] == [1]


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    spool = spool_in(tmp_path)
    spool.find(1)
    assert not spool.complete
    assert (tmp_path / "notes.txt").exists()
