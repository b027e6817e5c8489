"""The audit log: a line of JSON for each call and command that changes something for all, and who gave it.

Several processes write to one file. A line is one write to the end of the file, so lines never mix. A file that has grown to
its limit is renamed, as are the older ones: `audit.log.1` is the newest of them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from messages.access.private_file import APPEND, give_to_owner, is_locked_within, open_lock

AUDIT_FILE = "audit.log"  # in the state directory
MOST_BYTES = 8 << 20  # of one file
N_OLD = 4  # files that are kept beside it
_MOST_LINE_BYTES = 4096  # longer parameters are left out
_LOCK_S = 1.0  # longest wait for another process that renames the files; if it was stopped, the file grows meanwhile


class Door(StrEnum):
    """Where a call came from."""

    HTTP = "http"
    ZEROMQ = "zeromq"
    COMMAND = "command"  # of an operator, on the server's machine
    SIGNAL = "signal"  # to the supervisor: from the server's user or root, nobody knows from whom


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked for, by whom, and what came of it. No secret, and nothing of a prompt."""

    time: str  # UTC, to the millisecond
    door: Door
    action: str  # "POST /v1/cache/reset", "CacheResetWanted", "keys add", "reload"
    result: str  # "done", or the word of the refusal
    role: str = ""  # of the key: user or admin; "operator": whoever the machine's user is
    tenant: str = ""
    key: str = ""  # its id
    address: str = ""  # IP address of the client
    user: str = ""  # of the machine, who has given a command
    parameters: dict[str, Any] = {}
    detail: str = ""  # what a refusal says beside its word


def utc_text(wall_s: float) -> str:
    """A Unix time as records have it."""
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def append_audit(path: Path, record: AuditRecord) -> None:
    """Write one line, and wait until the disk has it. Raises: OSError."""
    line = msgspec.json.encode(record) + b"\n"
    if len(line) > _MOST_LINE_BYTES:
        line = msgspec.json.encode(msgspec.structs.replace(record, parameters={}, detail="left out: too long")) + b"\n"
    with suppress(FileNotFoundError):
        if path.stat().st_size + len(line) > MOST_BYTES:
            _rotate(path, len(line))
    fd = os.open(path, APPEND, 0o600)
    try:
        give_to_owner(fd, path.parent)
        os.write(fd, line)
        os.fsync(fd)
    finally:
        os.close(fd)


def _rotate(path: Path, n_more: int) -> None:
    """Rename the files, unless another process does or has done it. Raises: OSError."""
    lock = open_lock(path)
    try:
        if not is_locked_within(lock, _LOCK_S) or path.stat().st_size + n_more <= MOST_BYTES:
            return
        for number in range(N_OLD, 0, -1):
            newer = path if number == 1 else Path(f"{path}.{number - 1}")
            with suppress(FileNotFoundError):
                newer.replace(f"{path}.{number}")
    finally:
        os.close(lock)
