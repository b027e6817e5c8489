"""The file of API keys: JSON, for its owner alone, replaced as a whole. Commands change it, gateways read it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from messages.access.api_key import KeyRecord
from messages.access.private_file import read_private, replace_private
from messages.errors import ConfigError

KEY_FILE = "api-keys.json"  # in the state directory
_MOST_BYTES = 64 << 20


class _Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    keys: tuple[KeyRecord, ...]


_VERSION = 1


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """All keys of a file; none if it does not exist. Raises: ConfigError for one that cannot be read, or that others may
    change."""
    raw = read_private(path, _MOST_BYTES)
    if raw is None:
        return ()
    try:
        found = msgspec.json.decode(raw, type=_Keys)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: expected a file of API keys: {error}") from None
    if found.version != _VERSION:
        raise ConfigError(f"{path}: expected version {_VERSION}, got {found.version}")
    return found.keys


def change_keys(path: Path, change: Callable[[tuple[KeyRecord, ...]], Sequence[KeyRecord]]) -> None:
    """Replace the keys of a file by what `change` makes of them. Commands that run at the same time wait for each other.

    Raises: ConfigError, OSError, and what `change` raises; then the file is as it was.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        after = _Keys(_VERSION, tuple(change(read_keys(path))))
        replace_private(path, msgspec.json.format(msgspec.json.encode(after), indent=2))
    finally:
        os.close(lock)
