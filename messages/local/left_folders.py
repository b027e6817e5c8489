"""Folders of private servers whose programs and guards were killed: the next program removes those that nobody uses any more.

A guard holds a lock in its folder for as long as it lives. When it is killed alone, the server's own lock and its sockets are
there until the server has ended too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from pathlib import Path

from messages.descriptors.file_lock import is_locked

_OWNER, _SERVER_LOCK = "owner.lock", "lock"
_UNIX_SOCKETS = Path("/proc/net/unix")
_NEW_S = 60.0  # a folder may be about to be locked
_OLDEST_START_S = 3600.0  # of a release whose guards hold no lock: its server may still fetch a model


def held_by_owner(folder: Path) -> int:
    """Lock a new folder. Returns the descriptor: the folder is in use while a process has it, or a copy of it."""
    fd = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def remove_left(parent: Path, prefix: str, run_dir: str, now_s: float | None = None) -> list[Path]:
    """Remove the folders in `parent` whose names begin with `prefix`, that belong to this user and that surely nobody uses.
    `run_dir`: the name of a server's run directory in them; `now_s`: the wall clock. Returns them."""
    now_s = time.time() if now_s is None else now_s
    left = [folder for folder in parent.glob(f"{prefix}*") if _is_left(folder, folder / run_dir, now_s)]
    if not left:
        return []
    in_use = _folders_with_sockets()
    removed = [folder for folder in left if not any(str(path).startswith(f"{folder}/") for path in in_use)]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return removed


def _is_left(folder: Path, run_dir: Path, now_s: float) -> bool:
    try:
        found = folder.lstat()
        has_owner = (folder / _OWNER).exists()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        is_old = now_s - found.st_mtime > (_NEW_S if has_owner else _OLDEST_START_S)
        return is_old and not is_locked(folder / _OWNER) and not is_locked(run_dir / _SERVER_LOCK)
    except OSError:  # another program has removed it, or its files cannot be read
        return False


def _folders_with_sockets() -> list[str]:
    """The paths of all Unix sockets that are open on this machine."""
    return [line.split(maxsplit=7)[-1] for line in _UNIX_SOCKETS.read_text(errors="surrogateescape").splitlines()]
