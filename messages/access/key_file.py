"""The file of API keys: JSON, for its owner alone, replaced as a whole. Commands change it, gateways read it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from messages.access.api_key import KeyRecord
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
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o022:
                raise ConfigError(f"{path}: expected a file that only its owner may write; chmod 600 mends that")
            raw = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
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
        _replace(path, msgspec.json.format(msgspec.json.encode(after), indent=2))
    finally:
        os.close(lock)


def _replace(path: Path, content: bytes) -> None:
    """Write the file so that a reader, also after a crash, sees either the old or the new content."""
    new = path.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
