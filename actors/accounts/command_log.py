"""What the accounts have handled since their file was written, message by message. It survives the death of the process: each
record is in the system's memory before the next message is handled. A loss of power may cost the last second.

    accounts             the file, with the number of the first log that it does not have
    accounts-log-7       the records since then; a new log begins with each file
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from messages.access.allowances import TakeAllowance, UsageTold

_LENGTH_BYTES = 4
_MARK = "-log-"


class GatewayDied(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """A gateway was proven dead."""


class Handled(msgspec.Struct, frozen=True, array_like=True):
    """One record: what was handled, of which gateway, and when, in Unix time."""

    gateway: str
    wall_s: float
    what: TakeAllowance | UsageTold | GatewayDied


_decoder = msgspec.msgpack.Decoder(Handled)


class CommandLog:
    """The newest log beside the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path, self._fd, self.number = path, -1, 0
        self._n_bytes = 0  # of whole records in the newest log

    def begin(self, number: int) -> None:
        """Begin a new log with this number. Raises: OSError."""
        self.close()
        self.number, self._n_bytes = number, 0
        name = self._path.with_name(f"{self._path.name}{_MARK}{number}")
        self._fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def advance(self) -> None:
        """Begin the next log, unless the newest one has no record: a disk that refuses everything gets no more files.
        Raises: OSError."""
        if self._fd < 0 or self._n_bytes:
            self.begin(self.number + 1)

    def append(self, record: Handled) -> None:
        """Add a record. Raises: OSError; then the log is as it was, or ends with a part that the next record overwrites."""
        body = msgspec.msgpack.encode(record)
        data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
        if os.pwrite(self._fd, data, self._n_bytes) != len(data):
            with suppress(OSError):
                os.ftruncate(self._fd, self._n_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._n_bytes += len(data)

    def close(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def numbers(self) -> list[int]:
        """The numbers of all logs, rising."""
        start = f"{self._path.name}{_MARK}"
        found = [one.name.removeprefix(start) for one in self._path.parent.glob(f"{start}*")]
        return sorted(int(number) for number in found if number.isdecimal())

    def drop_before(self, number: int) -> None:
        """Remove the logs that a file has."""
        for old in self.numbers():
            if old < number:
                self._path.with_name(f"{self._path.name}{_MARK}{old}").unlink(missing_ok=True)

    def records(self, first: int) -> Iterator[Handled]:
        """The records of all logs from number `first` on. A record that was cut off, or that cannot be read, ends its log."""
        for number in self.numbers():
            if number >= first:
                yield from _records_in(self._path.with_name(f"{self._path.name}{_MARK}{number}"))


def _records_in(path: Path) -> Iterator[Handled]:
    try:
        data = memoryview(path.read_bytes())
    except OSError:
        return
    start = 0
    while start + _LENGTH_BYTES <= len(data):
        end = start + _LENGTH_BYTES + int.from_bytes(data[start : start + _LENGTH_BYTES], "little")
        if end > len(data):
            return
        try:
            yield _decoder.decode(data[start + _LENGTH_BYTES : end])
        except msgspec.DecodeError:
            return
        start = end
