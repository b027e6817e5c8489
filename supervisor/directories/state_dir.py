"""The directory of the journals. Only one server at a time may use it, wherever that server's run directory is.

The default survives a reboot, unlike a run directory: $XDG_STATE_HOME/tardigrade/<port>, which is
~/.local/state/tardigrade/<port> without that variable.
Two servers on one journal would each finish, and each delete, the requests that the other has accepted."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import structlog

from messages.errors import ConfigError
from supervisor.directories.atomic_file import restore_files
from supervisor.directories.gateway_number import GATEWAYS_FILE
from supervisor.parent.lock_file import LockFile

COPIED = (GATEWAYS_FILE,)  # files with a copy in memory; see memory_copy.py
_OLD_JOURNALS = "journal-*.sqlite"
_LOCK = "journals.lock"  # not "lock": a run directory, which has one of that name, may be a state directory too


def default_state_dir(port: int, environment: Mapping[str, str], home: Path) -> Path:
    """Where the server on this port keeps its journals if nobody says otherwise. `home`: the user's."""
    state = environment.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else home / ".local" / "state") / "tardigrade" / str(port)


def can_be_made(path: Path) -> bool:
    """Make the folders above a state directory, for this user alone; False if this user may not write there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK | os.X_OK)


class StateDir:
    """A state directory whose lock this process holds. `keep` gets the descriptor of each lock, for the next supervisor."""

    def __init__(self, path: Path, lock: LockFile, keep: Callable[[int], None] = lambda fd: None) -> None:
        self.path = path
        self._lock, self._keep = lock, keep

    @classmethod
    def acquire(cls, path: Path, keep: Callable[[int], None] = lambda fd: None) -> StateDir:
        """Make the directory if it is missing, and lock it.

        Raises: ConfigError when it is not private, when it cannot be locked, or when another server holds it.
        """
        make_private(path, "state_dir")
        self = cls(path.absolute(), _acquire(path), keep)
        self._note_lock()
        if old := sorted(one.name for one in self.path.glob(_OLD_JOURNALS)):
            what = "journals of release 0.1 cannot be read: their requests do not go on; remove them if nobody needs them"
            structlog.get_logger().error(what, path=str(self.path), files=old)
        return self

    def make_again(self) -> None:
        """If somebody has removed the directory, its lock or the number of gateways, make them again. Gateways make their
        journals again. To be called regularly."""
        if not self._is_locked():
            with contextlib.suppress(OSError):  # no room, or another server has begun here: the next call tries again
                can_be_made(self.path)
                before, self._lock = self._lock, LockFile.acquire(self.path / _LOCK)
                self._note_lock()
                before.close()
                structlog.get_logger().error("files of the state directory were removed; they exist again", path=str(self.path))
        if self._is_locked():
            restore_files(self.path)

    def release(self) -> None:
        """Give the directory up."""
        self._lock.release()

    def _is_locked(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path / _LOCK), os.fstat(self._lock.fd))
        except OSError:
            return False

    def _note_lock(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the error of the next server names no pid
            os.ftruncate(self._lock.fd, 0)
            os.pwrite(self._lock.fd, str(os.getpid()).encode(), 0)
        self._keep(self._lock.fd)


@contextlib.contextmanager
def hold_state_dir(path: Path, keep: Callable[[int], None] = lambda fd: None) -> Iterator[StateDir]:
    """Hold the directory inside of the `with` block. The arguments and what is raised are those of `StateDir.acquire`."""
    state_dir = StateDir.acquire(path, keep)
    try:
        yield state_dir
    finally:
        state_dir.release()


def _acquire(path: Path) -> LockFile:
    try:
        return LockFile.acquire(path / _LOCK)
    except BlockingIOError:
        with contextlib.suppress(OSError):
            holder = (path / _LOCK).read_bytes()[:20].decode("ascii", "replace") or "?"
            raise ConfigError(
                f"state_dir: expected no other server on the journals in {path}, got one that runs (pid {holder})"
            ) from None
        raise ConfigError(f"state_dir: expected no other server on the journals in {path}, got one that runs") from None
    except OSError as error:
        raise ConfigError(f"state_dir: expected a directory with a file that can be locked, got {error}") from None


def make_private(path: Path, key: str = "run_dir") -> Path:
    """Make a directory with mode 0700. `key`: the configuration key that names it, for errors.

    Raises: ConfigError when it belongs to another user, is a link, or is accessible to others.
    """
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=True)
        check_private(path, key)
    except OSError as error:
        raise ConfigError(f"{key}: expected a directory that can be made at {path}, got {error.strerror}") from None
    return path


def check_private(path: Path, key: str) -> None:
    """Check that `path`, the value of the setting `key`, is a directory that nobody else can read.

    Raises: ConfigError as `make_private`; OSError when there is nothing.
    """
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{key}: expected a directory at {path}, got something else")
    if found.st_uid != os.getuid():
        raise ConfigError(f"{key}: expected {path} to belong to user {os.getuid()}, got user {found.st_uid}")
    if found.st_mode & 0o077:
        raise ConfigError(f"{key}: expected mode 0700 on {path}, got {stat.S_IMODE(found.st_mode):04o}; chmod 700 {path}")
