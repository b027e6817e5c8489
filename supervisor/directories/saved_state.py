"""What a supervisor leaves to the next one besides its children: the command to the tree, the budgets of its
groups, how far a rolling restart has come, which replicas are cordoned, and how often the parent has died.

It is one small file in the run directory. A new server begins without it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from messages.lifecycle.cordon import Cordon
from supervisor.directories.atomic_file import AtomicFile
from supervisor.parent.memory_copy import read_newest
from supervisor.policy.history import Memory
from supervisor.policy.roll import Roll
from supervisor.policy.states import TreeCommand


class StandingCommand(msgspec.Struct, frozen=True):
    """A command to the tree that is being carried out. The file calls it `order`, as the last release does."""

    command: TreeCommand = msgspec.field(default=TreeCommand.NONE, name="order")
    end_s: float = 0.0  # when its drain must be over, by the monotonic clock, which all processes of one boot share
    exit_status: int = 0  # of the server, as far as it is known
    reason: str = ""  # for that status
    is_forced: bool = False
    n_interrupts: int = 0  # Ctrl-C, counted since the start of the server


class SavedState(msgspec.Struct, frozen=True):
    """The content of the file."""

    command: StandingCommand = msgspec.field(default=StandingCommand(), name="order")
    memory: Memory = Memory()
    roll: Roll = Roll()
    n_parent_deaths: int = 0
    cordons: list[Cordon] = []
    began_s: float = 0.0  # when the server was started, by the monotonic clock


class SavedStateFile:
    """The file of one supervisor. `left`: what the last one has left; the default if there was none. `now`:
    what the next one would read."""

    def __init__(self, path: Path) -> None:
        self._file = AtomicFile(path)
        self.left = self.now = _read(path)

    def note_beginning(self, now_s: float) -> None:
        """Write down when the server was started, if no earlier supervisor has."""
        if not self.now.began_s:
            self._write(msgspec.structs.replace(self.now, began_s=now_s))

    def note_command(self, command: StandingCommand) -> None:
        """Write down the present command."""
        self._write(msgspec.structs.replace(self.now, command=command))

    def note_memory(self, memory: Memory) -> None:
        """Write down what the restart policy remembers."""
        self._write(msgspec.structs.replace(self.now, memory=memory))

    def note_roll(self, roll: Roll) -> None:
        """Write down how far a rolling restart has come."""
        self._write(msgspec.structs.replace(self.now, roll=roll))

    def note_cordons(self, cordons: list[Cordon]) -> None:
        """Write down which replicas are cordoned."""
        self._write(msgspec.structs.replace(self.now, cordons=cordons))

    def note_parent_death(self) -> None:
        """Write down that the parent has died once more."""
        self._write(msgspec.structs.replace(self.now, n_parent_deaths=self.now.n_parent_deaths + 1))

    def retry(self) -> None:
        """Write what a full disk has refused."""
        self._file.retry()

    def _write(self, saved: SavedState) -> None:
        self.now = saved
        self._file.write(msgspec.json.encode(saved))


def _read(path: Path) -> SavedState:
    return read_newest(path, _decode) or SavedState()


def _decode(content: bytes) -> SavedState | None:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(content, type=SavedState)
    return None
