"""Simulated processes: the spawner starts real actors on the virtual loop; faults kill, pause and continue them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import msgspec

from actors.accounts.accounts_actor import AccountsActor
from actors.cache_directory.directory_actor import DirectoryActor
from actors.custodian.custodian_actor import CustodianActor
from actors.gateway.gateway_actor import GatewayActor
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.speculation.speculation_actor import SpeculationActor
from actors.vault.vault_actor import VaultActor
from gpu_workers.process.worker import Worker
from messages.ids import role_of
from messages.lifecycle.spawn_spec import SpawnSpec, read_spawn_spec
from messages.outcomes import ExitCode
from supervisor.children import adopted_process
from supervisor.children.process import ChildProcess, ExitStatus, OnExit, decode_exit, ignore_ending
from supervisor.children.spawner import LocalSpawner
from supervisor.directories import register
from supervisor.directories.atomic_file import AtomicFile
from supervisor.parent.link import Exits
from supervisor.policy.child_spec import ChildSpec
from tests.support.simulation.embedding import HashEncoder, SimulatedEmbedder
from tests.support.simulation.kernel import Kernel
from tests.support.simulation.network import SimulatedNetwork
from tests.support.simulation.virtual_loop import PROCESS, LifeState, SimulatedLife, VirtualLoop

_BOOT_S = (0.01, 0.3)
_UNREAPED_SHARE = 0.5
_REAP_S = (0.0001, 0.005)  # from a death to its proof
_ENDING_S = 0.002  # a process that ends more slowly closes its standard input after this time
SLOW_REAP_S: dict[str, tuple[float, float]] = {}  # by role: another time from a death to its proof, as that of GPU processes
_ACTORS: dict[str, Any] = {
    "cache_directory": lambda spawn_spec, make_mailbox: DirectoryActor(spawn_spec, make_mailbox, _now_s, lambda: time.time()),
    "accounts": lambda spawn_spec, make_mailbox: AccountsActor(spawn_spec, make_mailbox, _now_s, lambda: time.time()),
    "speculation": SpeculationActor,
    "worker": Worker,
    "scheduler": SchedulerActor,
    "gateway": GatewayActor,
    "custodian": CustodianActor,
    "vault": VaultActor,
}


class Machine:
    """The machine on which all processes run. `errors`: exceptions that ended an actor outside of its handlers.

    `on_orphan_exit(pid, returncode)`: a process whose supervisor is dead was reaped.
    """

    def __init__(self, loop: VirtualLoop, kernel: Kernel, network: SimulatedNetwork, chance: random.Random) -> None:
        self.loop, self.kernel, self.network, self.chance = loop, kernel, network, chance
        self.edges = kernel.edges
        self.processes: list[SimulatedProcess] = []
        self.errors: list[BaseException] = []
        self.problems: list[str] = []
        self.has_lost_connections = False  # a gateway and the custodian were out of service together
        self._n_connected: dict[int, int] = {}  # by gateway's pid: its custodians until the death of the last one
        self.on_death: Callable[[SimulatedLife], None] = lambda life: None
        self.on_orphan_exit: Callable[[int, int], None] = lambda pid, code: None
        self.parent = 1  # the number of the supervisor's parent, the first, second, ...
        self._n_pids = 1000
        kernel.kill = lambda pid: self.process(pid).die(-9)

    def new_pid(self) -> int:
        """The id of a new process."""
        self._n_pids += 1
        self.kernel.started(self._n_pids)
        return self._n_pids

    def process(self, pid: int) -> SimulatedProcess:
        """The process with this id, dead or alive."""
        return next(one for one in self.processes if one.pid == pid)

    def newest(self, name: str) -> SimulatedProcess | None:
        """The living process that is this child now, or None."""
        started = (p for p in reversed(self.processes) if p.name == name and p.spawn_spec is not None)
        process = next(started, None)
        return process if process is not None and process.is_alive else None

    def ready(self, role: str) -> list[Any]:
        """The actors of a role that can serve."""
        found = [p.actor for p in self.processes if role_of(p.name) == role and p.is_alive and p.actor is not None]
        return [actor for actor in found if actor.child.is_ready]

    def note_death(self, process: SimulatedProcess) -> None:
        """A process is about to die. The connections of a gateway are lost if it dies while no living custodian has them, or
        if the custodian dies before the next incarnation of a gateway has taken them.
        """
        role = role_of(process.name)
        if role == "gateway" and process.actor is not None and process.actor.servers.http is not None:
            custody = process.actor.custody
            is_given = custody.is_connected and custody.n_connected != self._n_connected.get(process.pid)
            self.has_lost_connections |= not is_given or not self._is_ready("custodian")
        elif role == "custodian":
            self.has_lost_connections |= not self._is_ready("gateway")
            for gateway in self.processes:  # a paused one does not know yet that it is connected to nobody
                if role_of(gateway.name) == "gateway" and gateway.is_alive and gateway.actor is not None:
                    self._n_connected[gateway.pid] = gateway.actor.custody.n_connected

    def _is_ready(self, role: str) -> bool:
        """Every process of a role is there and can serve."""
        names = {process.name for process in self.processes if role_of(process.name) == role}
        return len(self.ready(role)) == len(names)

    def check_spawn_spec(self, spawn_spec: SpawnSpec) -> None:
        """A second living process of the same name must never be started, nor one with a number that was used before."""
        for other in self.processes:
            if other.spawn_spec is not None and other.name == spawn_spec.name:
                if other.is_alive:
                    self.problems.append(
                        f"{spawn_spec.name}: incarnation {spawn_spec.incarnation} beside {other.spawn_spec.incarnation}"
                    )
                if other.spawn_spec.incarnation >= spawn_spec.incarnation:
                    self.problems.append(
                        f"{spawn_spec.name}: incarnation {spawn_spec.incarnation} after {other.spawn_spec.incarnation}"
                    )


class SimulatedProcess(ChildProcess):
    """One process. `actor` is the real actor in it, once it has started."""

    def __init__(self, machine: Machine, spec: ChildSpec, on_exit: OnExit) -> None:
        self.pid, self.on_exit, self.on_ending = machine.new_pid(), on_exit, ignore_ending
        self.exit: ExitStatus | None = None
        self.name, self.life = spec.name, SimulatedLife(spec.name, self.pid)
        self._descriptors = {name: machine.kernel.give(fd, self.life) for name, fd in spec.descriptors.items()}
        self.life.on_own_death = lambda: self.die(-9)
        self.spawn_spec: SpawnSpec | None = None
        self.actor: Any = None
        self.on_death: list[Callable[[], None]] = []
        self._machine = machine
        self._supervisor = PROCESS.get()
        self._supervisor_context = copy_context()
        self.context = context_of(self.life)
        self._returncode: int | None = None
        self.reaper = 0  # the number of the parent whose child it has become; 0: it is a supervisor's

    @property
    def is_alive(self) -> bool:
        """False from the moment of its death, which is proven a little later."""
        return self.life.state is not LifeState.DEAD

    def send_spawn_spec(self, spawn_spec: bytes) -> None:
        self.spawn_spec = None
        read = msgspec.structs.replace(read_spawn_spec(spawn_spec), descriptors=self._descriptors)
        self._machine.check_spawn_spec(read)
        self.spawn_spec = read
        loop = self._machine.loop
        loop.call_later(self._machine.chance.uniform(*_BOOT_S), self._begin, context=self.context)

    def kill(self) -> None:
        self.die(-9)

    def is_suspended(self) -> bool:
        return self.life.state is LifeState.PAUSED

    def resident_bytes(self) -> int:
        return 0 if self.exit else 4096

    def pause(self) -> None:
        """Stop it, as SIGSTOP does."""
        if self.life.state is LifeState.RUNNING:
            self.life.state = LifeState.PAUSED

    def resume(self) -> None:
        """Let it continue, as SIGCONT does."""
        self._machine.loop.resume(self.life)

    def die(self, returncode: int) -> None:
        """End at once, without a message. The supervisor gets the proof a little later."""
        if not self.is_alive:
            return
        self._machine.note_death(self)
        self.life.state = LifeState.DEAD
        self.life.held = []
        self._machine.kernel.close_all_of(self.life)
        self._machine.on_death(self.life)
        for call in self.on_death:
            call()
        self._returncode = returncode
        delay_s = self._machine.chance.uniform(*SLOW_REAP_S.get(role_of(self.name), _REAP_S))
        if self._supervisor is not None and self.spawn_spec is not None:
            ending_s = min(delay_s / 2, _ENDING_S)
            self._machine.loop.call_later(ending_s, self._notice_ending, context=self._supervisor_context)
        self._machine.loop.call_later(delay_s, self._prove, context=context_of(None))

    def supervisor_died(self) -> None:
        """It becomes a child of the supervisor's parent, who reaps it."""
        self._supervisor = None
        if self.spawn_spec is None:
            self.die(ExitCode.FAULT)  # its standard input has ended
        self.reaper = self._machine.parent
        if self._machine.kernel.is_proven(self.pid) and self.exit is None:
            self._tell_parent()

    def unreaped_code(self) -> int | None:
        """How it ended, if the machine's first process, which reaps it, has not done so yet."""
        return self._returncode if self._machine.chance.random() < _UNREAPED_SHARE else None

    def _tell_parent(self) -> None:
        if self._returncode is not None and self.reaper == self._machine.parent:
            self._machine.on_orphan_exit(self.pid, self._returncode)

    def is_child_of(self, supervisor: SimulatedLife) -> bool:
        """True if this supervisor has started it and is its parent still."""
        return self._supervisor is supervisor

    def _notice_ending(self) -> None:
        if self._supervisor is not None and self._returncode is not None:
            self.on_ending(decode_exit(self._returncode))

    def _prove(self) -> None:
        assert self._returncode is not None
        self._machine.kernel.died(self.pid)
        if self._supervisor is None:
            self._tell_parent()
        else:
            self._machine.loop.call_soon(self._reap, self._returncode, context=self._supervisor_context)

    def _reap(self, returncode: int) -> None:
        self.exit = decode_exit(returncode)
        self.on_exit(self.exit)

    def _begin(self) -> None:
        assert self.spawn_spec is not None
        if role_of(self.name) == "embedder":
            encoder = HashEncoder(self._machine.edges, self._machine.chance)
            self.actor = SimulatedEmbedder(self.spawn_spec, self._machine.network.mailbox, encoder, lambda: self.die(1))
        else:
            self.actor = _ACTORS[role_of(self.name)](self.spawn_spec, self._machine.network.mailbox)
        task = self._machine.loop.create_task(self.actor.run())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[int]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._machine.errors.append(error)
        self.die(task.result() if error is None and not task.cancelled() else 1)


class SimulatedSpawner(LocalSpawner):
    """The real spawner of one supervisor, with its register; but its processes are simulated."""

    def __init__(self, machine: Machine, register_path: Path, exits: Exits) -> None:
        super().__init__(register_path, exits=exits)
        self._machine = machine

    def spawn(self, spec: ChildSpec, on_exit: OnExit, warm_ups: tuple[str, ...] = (), is_new: bool = False) -> SimulatedProcess:
        with self._machine.edges.around("spawns"):
            process = SimulatedProcess(self._machine, spec, on_exit)
            self._machine.processes.append(process)
        self._register.add(spec.name, process.pid)
        return process

    def take_memory_kill(self) -> bool:
        return False

    def retry_writes(self) -> None:
        self._register.file.retry()


def make_processes_findable(patch: Callable[[Any, str, Any], None], machine: Machine) -> None:
    """Replace what reads /proc. `patch(object, name, value)` must undo itself after the simulation."""
    write = AtomicFile.write

    def write_at_edge(file: AtomicFile, content: bytes) -> None:
        with machine.edges.around("writes a file"):
            write(file, content)

    patch(AtomicFile, "write", write_at_edge)
    patch(register, "start_ticks_of", lambda pid: None if machine.kernel.is_proven(pid) else 1)
    patch(adopted_process, "is_suspended", lambda pid: machine.process(pid).is_suspended())
    patch(adopted_process, "resident_bytes", lambda pid: 4096)
    patch(adopted_process, "sample_of", lambda pid: None)
    patch(adopted_process, "parent_of", lambda pid: machine.process(pid).reaper)
    patch(adopted_process, "exit_code_of", lambda pid, pidfd: machine.process(pid).unreaped_code())
    patch(adopted_process.os, "getppid", lambda: machine.parent)


def context_of(life: SimulatedLife | None) -> Context:
    """A context whose callbacks belong to a process; None: to none."""
    context = copy_context()
    context.run(PROCESS.set, life)
    return context


def _now_s() -> float:
    return asyncio.get_running_loop().time()
