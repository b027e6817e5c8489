"""The private directory of one server: sockets, the lock, the journals. Found by its port, owned by one supervisor.

$XDG_RUNTIME_DIR/tardigrade-<port>/    or /tmp/tardigrade-<uid>/<port>/ without one; mode 0700, checked
    lock                  held by the running supervisor
    journals.lock         the same for the journals, when they are here; see state_dir.py
    supervisor.pid        its process id, for the operator's commands
    children.json         process ids of the children; left behind by a supervisor that was killed
    incarnations.json     the newest life of every actor; outlives the server
    end.json              how the last server ended, for the operator's commands
    supervisor            inbox (a socket, like the next ones)
    worker-0.1.3          inbox of worker/0.1 in its third life
    gang-0.3/             where the ranks of that life meet
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path

import filelock
import structlog

from messages.errors import ConfigError, TardigradeError
from supervisor.children.orphans import end_leftovers

_SOCKET_PATH_BYTES = 107  # sockaddr_un, without its closing zero
_LOOK_S = 0.3  # `supervisor stop` holds the lock for a moment when it sees that the server has gone
_END = "end.json"
_REGISTER = "children.json"
_DEATH_S = 10.0  # of what a killed server left behind
_LONGEST_SOCKET_NAME = "cache_directory-00.00.1234567890"


class LeftoverAlive(TardigradeError):
    """Children of a killed server do not die; nothing of theirs may be used. Names them."""


def make_private(path: Path, key: str = "run_dir") -> Path:
    """Make a directory that only we can enter; `key` of the configuration names it.

    Raises: ConfigError when it belongs to somebody else, is a link, or is open to others.
    """
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise ConfigError(f"{key}: expected a directory that can be made at {path}, got {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{key}: expected a directory at {path}, got something else")
    if found.st_uid != os.getuid():
        raise ConfigError(f"{key}: expected {path} to belong to user {os.getuid()}, got user {found.st_uid}")
    if found.st_mode & 0o077:
        raise ConfigError(f"{key}: expected mode 0700 on {path}, got {stat.S_IMODE(found.st_mode):04o}")
    return path


class RunDir:
    """A run directory that this process holds. Use `take`."""

    def __init__(self, path: Path, lock: filelock.FileLock) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def take(cls, path: Path) -> RunDir:
        """Make the directory, lock it, and clear away what an earlier server left.

        Raises: ConfigError when another server holds it, or when it is not private; LeftoverAlive when children of a
        killed one do not die.
        """
        path = path.absolute()
        longest = len(os.fsencode(path / _LONGEST_SOCKET_NAME))
        if longest > _SOCKET_PATH_BYTES:
            raise ConfigError(
                f"run_dir: expected a path of at most {_SOCKET_PATH_BYTES - longest + len(str(path))} bytes, got {path}"
            )
        if path.parent == Path("/tmp") / f"tardigrade-{os.getuid()}":
            make_private(path.parent)
        make_private(path)
        lock = filelock.FileLock(path / "lock", timeout=_LOOK_S, mode=0o600)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise ConfigError(
                f"run_dir: expected no other server in {path}, got one that runs (pid {read_pid(path) or '?'})"
            ) from None
        self = cls(path, lock)
        self._succeed()
        self._clear()
        (path / _END).unlink(missing_ok=True)
        (path / "supervisor.pid").write_text(str(os.getpid()))
        return self

    def endpoint(self, name: str, incarnation: int) -> str:
        """Where this life of an actor has its inbox."""
        return f"ipc://{self.path / _file_name(name, incarnation)}"

    @property
    def register_path(self) -> Path:
        """Where the supervisor writes down its children."""
        return self.path / _REGISTER

    @property
    def supervisor_endpoint(self) -> str:
        """Where the supervisor has its inbox."""
        return supervisor_endpoint(self.path)

    def forget(self, name: str, incarnation: int) -> None:
        """Remove the socket of a life that is proven dead. One that stays disturbs nobody: no other life has its name."""
        with contextlib.suppress(OSError):
            (self.path / _file_name(name, incarnation)).unlink()

    def release(self, is_nobodys: bool = False) -> None:
        """Give the directory back. Journals stay, unless it was made for a port that nobody will ask for again."""
        self._clear()
        self._lock.release()
        if is_nobodys:
            shutil.rmtree(self.path, ignore_errors=True)

    def note_end(self, exit_status: int, words: str) -> None:
        """How this server ended; read by `read_end`. A full disk does not change how it ended."""
        try:
            (self.path / _END).write_text(json.dumps({"exit_status": exit_status, "words": words}))
        except OSError as error:
            structlog.get_logger().error("the end is not written down", exit_status=exit_status, reason=str(error))

    def _succeed(self) -> None:
        """When the last server was killed: say so, and prove that none of its children lives any more.

        Raises: LeftoverAlive.
        """
        if (pid := read_pid(self.path)) is None:
            return
        found, alive = end_leftovers(self.register_path, _DEATH_S)
        names = ", ".join(f"{child.name} (pid {child.pid})" for child in found) or "nobody"
        log = structlog.get_logger()
        log.warning("the last server here did not end in order; its journals are taken over", pid=pid, killed_now=names)
        if alive:
            self._lock.release()
            raise LeftoverAlive(", ".join(f"{child.name} (pid {child.pid})" for child in alive))

    def _clear(self) -> None:
        for entry in self.path.iterdir():
            if entry.is_socket() or entry.name in ("supervisor.pid", _REGISTER):
                entry.unlink(missing_ok=True)
            elif entry.name.startswith("gang-") and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)


def supervisor_endpoint(path: Path) -> str:
    """The supervisor's inbox inside a run directory."""
    return f"ipc://{path / 'supervisor'}"


def read_pid(path: Path) -> int | None:
    """The process id of the server in a run directory, or None when none is written there."""
    try:
        return int((path / "supervisor.pid").read_text())
    except (OSError, ValueError):
        return None


def read_end(path: Path) -> tuple[int, str]:
    """Exit status and last words of the server that was in a run directory; (0, "") when it left none."""
    try:
        end = json.loads((path / _END).read_text())
        return int(end["exit_status"]), str(end["words"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def _file_name(name: str, incarnation: int) -> str:
    return f"{name.replace('/', '-')}.{incarnation}"
