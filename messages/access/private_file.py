"""A file for its owner alone, replaced as a whole. Commands and gateways change it, and processes of the server read it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from messages.errors import ConfigError

# of a file to whose end lines are written; a pipe without a reader is an error, and nobody waits for one
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
Signature = tuple[int, int, int, int] | None
_MOST_BYTES = 64 << 20
_LOCK_S = 5.0


class FileRefused(ConfigError):
    """The system did not let this process read a file: it may at another time, although the file is the same."""


def read_private(path: Path) -> bytes | None:
    """The content; None without such a file.

    Raises: FileRefused for one that cannot be read, ConfigError for one that others may change.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if os.fstat(file.fileno()).st_mode & 0o022:
                raise ConfigError(f"{path}: expected a file that only its owner may write; chmod 600 mends that")
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileRefused(f"{path}: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that nobody writes is empty, and nobody waits for it


def signature_of(path: Path) -> Signature:
    """What differs after each replacement of a file, and after a change of its owner or mode; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """The time in which a file is read and replaced. Processes that change it at the same time wait for each other.
    Raises: OSError; TimeoutError when another one, which may be stopped, does not end within `_LOCK_S`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = open_lock(path)
    try:
        if not is_locked_within(lock, _LOCK_S):
            raise TimeoutError(errno.ETIMEDOUT, f"another process has been changing it for {_LOCK_S:g} s")
        yield
    finally:
        os.close(lock)


def open_lock(path: Path) -> int:
    """The open file beside this one that its writers lock; it belongs to the owner of the folder. Raises: OSError."""
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_to_owner(lock, path.parent)
    return lock


def is_locked_within(lock: int, limit_s: float) -> bool:
    """Lock an open file, for which other processes are waited for at most `limit_s`. Returns whether it is locked.
    Raises: OSError."""
    end_s = time.monotonic() + limit_s
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)


def give_to_owner(fd: int, folder: Path) -> None:
    """Let the owner of the folder have an open file, if this process may: what root makes for a server is the server's."""
    owner = folder.stat()
    if os.geteuid() != owner.st_uid:
        with suppress(PermissionError):
            os.fchown(fd, owner.st_uid, owner.st_gid)


def replace_private(path: Path, content: bytes) -> None:
    """Write the file so that a reader, also after a crash, sees either the old or the new content. Raises: OSError."""
    new = path.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        give_to_owner(fd, path.parent)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
