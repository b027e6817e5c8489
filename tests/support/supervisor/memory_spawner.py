"""A spawner without processes: tests see what was started and decide when it dies."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from messages.lifecycle.spawn_spec import SpawnSpec, read_spawn_spec
from supervisor.children.process import ChildProcess, ExitStatus, OnExit, decode_exit, ignore_ending
from supervisor.children.spawner import Spawner
from supervisor.directories.register import ChildFacts
from supervisor.policy.child_spec import ChildSpec


class MemoryProcess(ChildProcess):
    """A process that exists in name only. `die` proves its death."""

    def __init__(self, pid: int, on_exit: OnExit) -> None:
        self.pid, self.on_exit, self.on_ending = pid, on_exit, ignore_ending
        self.exit: ExitStatus | None = None
        self.spawn_spec: SpawnSpec | None = None
        self.n_kills = 0

    def send_spawn_spec(self, spawn_spec: bytes) -> None:
        self.spawn_spec = read_spawn_spec(spawn_spec)

    def kill(self) -> None:
        self.n_kills += 1

    def resume(self) -> None:
        """It is never stopped."""

    def is_suspended(self) -> bool:
        return False

    def resident_bytes(self) -> int:
        return 0 if self.exit else 4096

    def die(self, returncode: int = -9) -> None:
        """End like a real process with this return code."""
        self.exit = decode_exit(returncode)
        self.on_exit(self.exit)


@dataclass
class MemorySpawner(Spawner):
    """Records every spawn. While `is_full`, the machine has no room for another process. `left`: what `adopt` finds."""

    is_full: bool = False
    is_out_of_memory: bool = False
    processes: list[tuple[str, MemoryProcess]] = field(default_factory=list)
    left: list[tuple[ChildFacts, ChildProcess]] = field(default_factory=list)

    def spawn(self, spec: ChildSpec, on_exit: OnExit, warm_ups: tuple[str, ...] = (), is_new: bool = False) -> MemoryProcess:
        if self.is_full:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        process = MemoryProcess(1000 + len(self.processes), on_exit)
        self.processes.append((spec.name, process))
        return process

    def adopt(self) -> list[tuple[ChildFacts, ChildProcess]]:
        return self.left

    def take_memory_kill(self) -> bool:
        return self.is_out_of_memory

    def retry_writes(self) -> None:
        """There is no disk."""

    def newest(self, name: str) -> MemoryProcess:
        """The process that was spawned last for this child."""
        return next(process for spawned, process in reversed(self.processes) if spawned == name)
