"""Locks the run directory of a server, removes what an earlier server has left in it, and makes it again if it was removed.

`run_dir_files.py` lists its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from messages.errors import ConfigError, TardigradeError
from messages.log_file.level_file import LEVEL_FILE
from messages.run_dir import SERVED
from supervisor.directories.atomic_file import AtomicFile, restore_files
from supervisor.directories.orphans import kill_orphans, orphans_of, supervisor_at
from supervisor.directories.run_dir_files import (
    END,
    NEXT_SERVER,
    PARENT_PID,
    PID,
    REGISTER,
    SAVED_STATE,
    SERVER,
    check_length,
    read_pid,
    socket_name,
    supervisor_endpoint,
)
from supervisor.directories.state_dir import make_private
from supervisor.parent.lock_file import LockFile
from supervisor.parent.memory_copy import read_newest

_OF_ONE_SERVER = (PID, PARENT_PID, REGISTER, SERVER, SERVED, SAVED_STATE, NEXT_SERVER, LEVEL_FILE)
_LOCK_S = 0.3  # `supervisor stop` holds the lock for a moment when it sees that the server has gone
_DYING_S = 2.0  # a server that was killed holds the lock until its processes have ended, which takes a busy machine a while
_ORPHAN_DEATH_S = 10.0


class OrphanAlive(TardigradeError):
    """Children of a killed server do not die, so their resources must not be used. The error text names them."""


class RunDirTaken(ConfigError):
    """Another server holds this run directory. `pid`: its process, None where that is not known."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(f"run_dir: expected no other server in {path}, got one that runs (pid {pid or '?'})")
        self.pid = pid


class RunDir:
    """A run directory that this process has locked. `acquire` makes one."""

    def __init__(self, path: Path, lock: LockFile) -> None:
        self.path = path
        self._lock = lock
        self._second_lock = LockFile(-1)  # of a file that was made again
        self.keep_lock: Callable[[int], None] = lambda fd: None  # gets its descriptor, for the next supervisor
        self._is_ours = False  # False: nothing in it is changed

    @classmethod
    def acquire(cls, path: Path) -> RunDir:
        """Lock the run directory at `path`, making it if it is missing, and `begin`. Raises: as `lock` and `begin`."""
        self = cls.lock(path)
        self.begin()
        return self

    @classmethod
    def lock(cls, path: Path) -> RunDir:
        """Make the directory if it is missing, and lock it. Nothing else is changed in it before `begin`.

        Raises: RunDirTaken when another server holds it; ConfigError when it is not private, or when there can be no lock.
        """
        path = path.absolute()
        check_length(path)
        if path.parent == Path("/tmp") / f"tardigrade-{os.getuid()}":
            make_private(path.parent)
        make_private(path)
        try:
            lock = _acquire_lock(path)
        except OSError as error:
            raise ConfigError(f"run_dir: expected a directory with locks, got {path} ({error.strerror})") from None
        if (pid := supervisor_at(path)) is not None:  # somebody has removed its lock
            lock.release()
            raise RunDirTaken(path, pid)
        return cls(path, lock)

    @property
    def has_orphans(self) -> bool:
        """True if children of an earlier server live. They may hold its port."""
        return any(not one.is_gone for one in orphans_of(self.register_path))

    def begin(self) -> None:
        """Kill what an earlier server has left, and remove its files. Does nothing the second time.

        Raises: ConfigError when there is no room for files; OrphanAlive when children of a killed server do not die.
        """
        if self._is_ours:
            return
        try:
            self._kill_predecessors_orphans()
            self._is_ours = True
            self._clear()
            (self.path / END).unlink(missing_ok=True)
            (self.path / PID).write_text(str(os.getpid()))
        except OSError as error:
            self.release()
            why = f"({error.strerror})"
            raise ConfigError(f"run_dir: expected a directory with room for files, got {self.path} {why}") from None

    @classmethod
    def open_unlocked(cls, path: Path) -> RunDir:
        """The run directory of a server that runs, to read in it. It is not locked by this object."""
        return cls(path, LockFile(-1))

    @classmethod
    def resume(cls, path: Path, lock_fd: int, keep_lock: Callable[[int], None] = lambda fd: None) -> RunDir:
        """Go on in the directory of a supervisor that died, whose lock the parent has kept. Nothing in it is removed.
        `note_processes` follows."""
        self = cls(path, LockFile(lock_fd))
        self.keep_lock = keep_lock
        self._is_ours = True
        self.make_again()
        return self

    @property
    def lock_fd(self) -> int:
        """The descriptor of the lock."""
        return self._lock.fd

    @property
    def server_path(self) -> Path:
        """The file with what this server consists of."""
        return self.path / SERVER

    @property
    def next_server_path(self) -> Path:
        """The file with what this server consists of after a rolling restart."""
        return self.path / NEXT_SERVER

    @property
    def saved_state_path(self) -> Path:
        """The file with what a supervisor leaves to the next one."""
        return self.path / SAVED_STATE

    @property
    def has_served(self) -> bool:
        """True once the whole tree of this server has served."""
        return read_newest(self.path / SERVED, lambda _: True) is not None

    def note_served(self) -> None:
        """Write down that the whole tree has served."""
        AtomicFile(self.path / SERVED).write(b"")

    def note_processes(self, parent_pid: int) -> None:
        """Write down the process ids of this supervisor and of its parent, for `read_pid` and `read_parent_pid`."""
        AtomicFile(self.path / PID).write(str(os.getpid()).encode())
        AtomicFile(self.path / PARENT_PID).write(str(parent_pid).encode())

    def make_again(self) -> None:
        """If somebody has removed the directory or its lock, as programs that clean /tmp do, make them again, with the files
        that have copies in memory, so that operators find this server. Living processes make their own sockets again."""
        if self._lock.fd >= 0:
            if not self._is_locked():
                self._lock_again()
            if self._is_locked():  # otherwise it belongs to another server now
                restore_files(self.path)

    def _is_locked(self) -> bool:
        try:
            return os.stat(self.path / "lock").st_ino in map(_inode_of, (self._lock, self._second_lock))
        except OSError:
            return False

    def _lock_again(self) -> None:
        with contextlib.suppress(OSError):  # no room, or another server has begun here: the next call tries again
            for folder in (self.path.parent, self.path):
                folder.mkdir(mode=0o700, exist_ok=True)
            before, self._second_lock = self._second_lock, LockFile.acquire(self.path / "lock")
            before.close()
            self.keep_lock(self._second_lock.fd)
            AtomicFile(self.path / PID).write(str(os.getpid()).encode())
            structlog.get_logger().error("files of the run directory were removed; they exist again", path=str(self.path))

    def endpoint(self, name: str, incarnation: int) -> str:
        """The endpoint of the inbox of one incarnation of an actor."""
        return f"ipc://{self.path / socket_name(name, incarnation)}"

    @property
    def register_path(self) -> Path:
        """The file in which the supervisor registers its child processes."""
        return self.path / REGISTER

    @property
    def supervisor_endpoint(self) -> str:
        """The endpoint of the supervisor's inbox."""
        return supervisor_endpoint(self.path)

    def remove_socket(self, name: str, incarnation: int) -> None:
        """Remove the socket of an incarnation that is proven dead. A failure is ignored: no other incarnation has this name."""
        with contextlib.suppress(OSError):
            (self.path / socket_name(name, incarnation)).unlink()

    def release(self, is_temporary: bool = False) -> None:
        """Give the directory up; it is unlocked when the parent has ended too. Journals stay. `is_temporary`: remove the whole
        directory, which was made for a random port."""
        with contextlib.suppress(OSError):  # somebody has removed it
            if self._is_ours:
                self._clear()
        self._lock.close()
        self._second_lock.close()
        if is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def note_end(self, exit_status: int, reason: str) -> None:
        """Write down how this server ended, for `read_end`. A full disk does not change how it ended."""
        try:
            (self.path / END).write_text(json.dumps({"exit_status": exit_status, "reason": reason}))
        except OSError as error:
            structlog.get_logger().error("end.json not written", exit_status=exit_status, reason=str(error))

    def _kill_predecessors_orphans(self) -> None:
        """If the last server here was killed, log that and kill its children that are still alive.

        Raises: OrphanAlive.
        """
        pid = read_pid(self.path)
        found, alive = kill_orphans(self.register_path, _ORPHAN_DEATH_S)
        names = ", ".join(f"{child.name} (pid {child.pid})" for child in found) or "none"
        if pid is not None or found:
            text = "the last server here was killed; this one takes over its journals"
            structlog.get_logger().warning(text, pid=pid, killed_now=names)
        if alive:
            self._lock.release()
            raise OrphanAlive(", ".join(f"{child.name} (pid {child.pid})" for child in alive))

    def _clear(self) -> None:
        for entry in self.path.iterdir():
            if entry.is_socket() or entry.name in _OF_ONE_SERVER:
                entry.unlink(missing_ok=True)
            elif entry.name.startswith("gang-") and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)


def _inode_of(lock: LockFile) -> int:
    return os.fstat(lock.fd).st_ino if lock.fd >= 0 else -1


def _acquire_lock(path: Path) -> LockFile:
    """Raises: RunDirTaken when another server holds the lock of this directory; OSError when there can be none."""
    end_s = time.monotonic() + _DYING_S
    while True:
        try:
            return LockFile.acquire(path / "lock", _LOCK_S)
        except BlockingIOError:
            if supervisor_at(path) is not None or time.monotonic() >= end_s:
                raise RunDirTaken(path, read_pid(path)) from None
