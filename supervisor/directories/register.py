"""The register of child processes on disk: what a supervisor must know of the children of one that was killed, to adopt them.

It holds process id, start time and the boot id of the machine, so another process with the same id is never taken for a child.
An entry stays after a death until the next incarnation of that child exists, so that no cause of death is forgotten.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from messages.ids import boot_id
from messages.lifecycle.lifecycle import Cause
from supervisor.directories.atomic_file import AtomicFile
from supervisor.parent.memory_copy import read_newest

_START_TIME = 19  # in /proc/PID/stat, counted from the field after the name; `man proc` calls it (22)


class ChildFacts(msgspec.Struct, frozen=True):
    """What is known of one process: an incarnation of a child, or (`incarnation` 0) a spare that waits for its spawn spec."""

    name: str
    incarnation: int = 0
    gang_dir: str = ""
    n_starts: int = 0  # of this child in this server, this one included
    is_announced: bool = False  # the other children were told that it can serve
    killed_for: Cause | None = None  # why its supervisor killed it
    died_of: Cause | None = None  # its death is proven, and this is the cause
    predecessor_died_of: Cause | None = None  # why the last incarnation before this one died in this server
    started_s: float = 0.0  # by the monotonic clock, which all processes of one boot share; 0: not known


class Registered(msgspec.Struct, frozen=True):
    """One child process."""

    facts: ChildFacts
    pid: int
    start_ticks: int  # since boot, by the kernel

    @property
    def name(self) -> str:
        """The child's name."""
        return self.facts.name

    @property
    def is_gone(self) -> bool:
        """True if the process has ended, also when nobody has taken its exit status yet. Raises: OSError when that cannot be
        read."""
        return start_ticks_of(self.pid) != self.start_ticks


class _Content(msgspec.Struct, frozen=True):
    boot: str
    children: list[Registered]


class ProcessRegister:
    """The child processes of one supervisor, on disk as soon as the disk can be written."""

    def __init__(self, path: Path) -> None:
        self.file, self._boot = AtomicFile(path), boot_id()
        self._by_pid = {child.pid: child for child in read_register(path)}

    @property
    def children(self) -> list[Registered]:
        """All entries."""
        return list(self._by_pid.values())

    def add(self, name: str, pid: int) -> None:
        """Register a process that waits for its spawn spec, and forget those that have ended without one.

        Raises: OSError when the kernel cannot be asked about it now (no descriptor is left); then it is not registered.
        """
        start_ticks = start_ticks_of(pid)
        self._by_pid = {child.pid: child for child in self.children if child.facts.incarnation or not child.is_gone}
        if start_ticks is not None:
            self._by_pid[pid] = Registered(ChildFacts(name), pid, start_ticks)
        self._write()

    def note(self, pid: int, facts: ChildFacts) -> None:
        """Register what a process is now. Entries of dead incarnations that it replaces are removed."""
        known = self._by_pid.get(pid)
        if known is None or known.facts == facts:
            return
        if facts.incarnation and not known.facts.incarnation:
            old = [other.pid for other in self.children if other.name == facts.name and other.facts.died_of]
            for other in old:
                del self._by_pid[other]
        self._by_pid[pid] = Registered(facts, pid, known.start_ticks)
        self._write()

    def _write(self) -> None:
        self.file.write(msgspec.json.encode(_Content(self._boot, self.children)))


def read_register(path: Path) -> list[Registered]:
    """The entries of a register that a supervisor has written since the machine was booted. None when it cannot be read."""
    content = read_newest(path, _decode)
    return [] if content is None else content.children


def _decode(encoded: bytes) -> _Content | None:
    with suppress(msgspec.DecodeError):
        content = msgspec.json.decode(encoded, type=_Content)
        return content if content.boot == boot_id() else None
    return None


def start_ticks_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none, or only a zombie.

    Raises: OSError when it cannot be read.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME])
