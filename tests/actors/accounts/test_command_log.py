"""The log of the accounts on a disk that refuses records, or takes a part of one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from actors.accounts.command_log import CommandLog, GatewayDied, Handled


def record(number: int) -> Handled:
    return Handled(f"gateway/{number}", 1.0, GatewayDied())


def gateways_in(path: Path) -> list[str]:
    return [one.gateway for one in CommandLog(path).records(0)]


@pytest.mark.parametrize("is_cut_back", [True, False])
def test_a_record_of_which_the_disk_took_a_part_hides_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut_back: bool
) -> None:
    log = CommandLog(tmp_path / "accounts")
    log.begin(1)
    log.append(record(1))
    write = os.pwrite

    def write_half(fd: int, data: bytes, offset: int) -> int:
        return write(fd, data[: len(data) // 2], offset)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", write_half)
        if not is_cut_back:
            context.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="No space left"):
            log.append(record(2))
    assert gateways_in(tmp_path / "accounts") == ["gateway/1"]
    log.append(record(3))
    assert gateways_in(tmp_path / "accounts") == ["gateway/1", "gateway/3"]
    log.close()


def test_a_log_without_a_record_is_used_again(tmp_path: Path) -> None:
    log = CommandLog(tmp_path / "accounts")
    for _ in range(3):  # the file of the accounts could not be written, and nothing was logged
        log.advance()
    assert (log.number, log.numbers()) == (1, [1])
    log.append(record(1))
    log.advance()
    assert (log.number, gateways_in(tmp_path / "accounts")) == (2, ["gateway/1"])
    log.close()
