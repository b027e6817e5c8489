"""Files with secrets: for their owner alone, and replaced as a whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from messages.errors import ConfigError


def read_private(path: Path, most_bytes: int) -> bytes | None:
    """What is in a file, at most so many bytes; None if it does not exist. Raises: ConfigError for one that cannot be read, or
    that others may change."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o022:
                raise ConfigError(f"{path}: expected a file that only its owner may write; chmod 600 mends that")
            return file.read(most_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def give_to_owner(fd: int, folder: Path) -> None:
    """Let the owner of the folder have an open file, if this process may: what root makes for a server is the server's."""
    owner = folder.stat()
    if os.geteuid() != owner.st_uid:
        with suppress(PermissionError):
            os.fchown(fd, owner.st_uid, owner.st_gid)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file so that a reader, also after a crash, sees either the old or the new content. Raises: OSError."""
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
