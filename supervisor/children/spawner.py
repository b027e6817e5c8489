"""Starts the processes of children: the Protocol that the child manager uses, and its implementation for this machine."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from supervisor.children.adopted_process import AdoptedProcess
from supervisor.children.exit_cause import OutOfMemoryKills
from supervisor.children.fork_link import ForkLink
from supervisor.children.fork_server import ForkRequest, is_forked
from supervisor.children.kept_spares import AdoptedSpare, KeptSpares
from supervisor.children.process import ChildProcess, ExitStatus, LocalProcess, OnExit
from supervisor.directories.register import ChildFacts, ProcessRegister, Registered
from supervisor.parent.link import Exits, ParentLink, Successor
from supervisor.policy.child_spec import ChildSpec

ENTRYPOINT = "supervisor.children.entrypoint"
_FORK_SERVER = "fork_server/0"  # its name in the register


class Spawner(Protocol):
    """Starts processes of children, which then wait for their spawn spec.

    `supervisor_pid`: whose death the children watch; 0 where they are not on the supervisor's machine.
    """

    supervisor_pid: int = 0

    def spawn(self, spec: ChildSpec, on_exit: OnExit, warm_ups: tuple[str, ...] = (), is_new: bool = False) -> ChildProcess:
        """Start a process for this child: with its environment and descriptors, after these warm-ups (see `entrypoint.py`).
        `is_new`: with the program as it is on disk now, so it is not forked.

        Raises: OSError when the machine cannot start one now; then no process is left behind.
        """
        ...

    def take_memory_kill(self) -> bool:
        """True if a process was killed for want of memory just now. Each kill is returned once."""
        ...

    def retry_writes(self) -> None:
        """Write the files that a full disk has refused, and look at the kernel's counts. Called about twice a second."""
        ...

    def note(self, process: ChildProcess, facts: ChildFacts) -> None:
        """Write down what a process is now, so that the next supervisor can adopt it. By default nothing is written."""

    def forks(self, spec: ChildSpec) -> bool:
        """True if processes of this child are forked from one that has imported what they need."""
        return False

    async def wait_warm(self) -> None:
        """Wait until processes can be forked, or it is known that they cannot. By default nothing is waited for."""

    def load(self, warm_ups: tuple[str, ...]) -> None:
        """Do these warm-ups where processes are forked. By default there is nothing to do."""

    def fork_successor(self) -> Successor | None:
        """The next supervisor, which waits for its parent; None where it must be started. By default it must."""
        return None

    def fork_spare_supervisor(self) -> Successor | None:
        """The same, where it takes milliseconds."""
        return None

    @property
    def makes_supervisors(self) -> bool:
        """True if supervisors are processes of this machine that can be made in advance. By default they are not."""
        return False

    def pids(self) -> set[int]:
        """Processes of its own."""
        return set()

    def close(self) -> None:
        """End the processes of its own. By default there are none."""

    def adopt(self) -> list[tuple[ChildFacts, ChildProcess]]:
        """The processes that an earlier supervisor has left, each with its facts. The end of dead ones is reported soon.

        Processes without a spawn spec are ended instead. By default there are none.
        """
        return []

    def adopt_spares(self) -> list[tuple[str, ChildProcess]]:
        """After `adopt`: the spares that an earlier supervisor has left, each with the name of its child. By default there are
        none."""
        return []


class LocalSpawner(Spawner):
    """Starts child processes on this machine, and registers each on disk, so that the next supervisor can adopt it.

    `exits`: exit statuses of the children of earlier supervisors. `kept`: spares that outlive the supervisor; None: none do.
    `forks`: what forks actors; None: each gets a new interpreter.
    """

    def __init__(
        self,
        register_path: Path,
        entrypoint: str = ENTRYPOINT,
        exits: Exits | None = None,
        kept: KeptSpares | None = None,
        forks: ForkLink | None = None,
    ) -> None:
        self._register, self._entrypoint = ProcessRegister(register_path), entrypoint
        self._exits, self._kept, self._forks = exits or Exits(), kept, forks
        self._left_spares: list[tuple[str, ChildProcess]] = []
        self._registered_forks = 0  # process id
        self.supervisor_pid = os.getpid()
        self._memory_kills = OutOfMemoryKills()

    def spawn(self, spec: ChildSpec, on_exit: OnExit, warm_ups: tuple[str, ...] = (), is_new: bool = False) -> ChildProcess:
        process = None
        if self._forks is not None and self.forks(spec) and not is_new:
            process = self._forks.fork(ForkRequest(spec.name, warm_ups), spec.descriptors, on_exit)
        if process is None:
            argv = [sys.executable, "-m", self._entrypoint, spec.name, *warm_ups]
            process = LocalProcess.spawn(argv, on_exit, spec.env, tuple(spec.descriptors.values()))
        try:
            self._register.add(spec.name, process.pid)
        except OSError:  # a process that is not registered must not live on
            process.on_exit = ignore_exit
            process.kill()
            raise
        if warm_ups and self._kept is not None:
            self._kept.keep(spec.name, process, spec.descriptors if process.descriptors is None else process.descriptors)
        return process

    def take_memory_kill(self) -> bool:
        return self._memory_kills.take_rise()

    def retry_writes(self) -> None:
        self._register.file.retry()
        self._memory_kills.poll()
        if self._forks is not None:
            self._forks.look(time.monotonic())
            self._register_forks(self._forks.pid)

    def forks(self, spec: ChildSpec) -> bool:
        return self._forks is not None and is_forked(spec.name) and not spec.env

    async def wait_warm(self) -> None:
        if self._forks is not None:
            self._register_forks(self._forks.pid)
            await self._forks.wait_warm()

    def load(self, warm_ups: tuple[str, ...]) -> None:
        if self._forks is not None:
            self._forks.load(warm_ups)

    def fork_successor(self) -> Successor | None:
        return self._forks.fork_supervisor() if self._forks is not None else None

    def fork_spare_supervisor(self) -> Successor | None:
        return self._forks.fork_prepared_supervisor() if self._forks is not None else None

    @property
    def makes_supervisors(self) -> bool:
        return self._forks is not None

    def pids(self) -> set[int]:
        return {self._forks.pid} if self._forks is not None else set()

    def close(self) -> None:
        if self._forks is not None:
            self._forks.close()

    def _register_forks(self, pid: int) -> None:
        """The next supervisor ends a fork server that is stopped and cannot end itself: the kernel does not, if this process
        becomes the parent."""
        if pid not in (0, self._registered_forks):
            with suppress(OSError):  # the kernel cannot be asked about it now
                self._register.add(_FORK_SERVER, pid)
                self._registered_forks = pid

    def note(self, process: ChildProcess, facts: ChildFacts) -> None:
        self._register.note(process.pid, facts)

    def adopt(self) -> list[tuple[ChildFacts, ChildProcess]]:
        processes = {child.pid: self._adopted(child) for child in self._register.children}
        self._exits.on_exit = lambda pid, code: processes[pid].reaped(code) if pid in processes else None
        adopted = []
        for child in self._register.children:
            if child.facts.incarnation:
                adopted.append((child.facts, processes[child.pid]))
            elif isinstance(process := processes[child.pid], AdoptedSpare) and process.exit is None:
                self._left_spares.append((child.name, process))
            else:
                process.kill()
        return adopted

    def adopt_spares(self) -> list[tuple[str, ChildProcess]]:
        return self._left_spares

    def _adopted(self, child: Registered) -> AdoptedProcess:
        spare = None
        if not child.facts.incarnation and self._kept is not None:
            with suppress(OSError):  # no descriptor is left
                spare = self._kept.of(child, self._exits, ignore_exit)
        return spare or AdoptedProcess(child, self._exits, ignore_exit)


def spawner_of(link: ParentLink, register_path: Path) -> LocalSpawner:
    """What starts the processes of a supervisor with this parent. Without a parent nothing is forked, and nothing outlives
    it."""
    forks = ForkLink() if link.has_parent else None
    return LocalSpawner(register_path, exits=link.exits, kept=KeptSpares(link), forks=forks)


def ignore_exit(_: ExitStatus) -> None:
    """Do nothing: `on_exit` of a process that has not become an actor."""
