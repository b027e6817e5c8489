"""Simulated processes: the spawner starts real actors on the virtual loop; faults kill, pause and continue them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from actors.cache_directory.directory_actor import DirectoryActor
from actors.gateway.gateway_actor import GatewayActor
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.speculation.speculation_actor import SpeculationActor
from gpu_workers.process.worker import Worker
from messages.birth import Birth, read_birth
from messages.ids import role_of
from supervisor.children.process import ChildProcess, ExitStatus, OnExit, decode_exit
from supervisor.children.spawner import Spawner
from supervisor.policy.child_spec import ChildSpec
from tests.support.simulation.network import SimulatedNetwork
from tests.support.simulation.threads import SimulatedWriter
from tests.support.simulation.virtual_loop import PROCESS, LifeState, SimulatedLife, VirtualLoop

_BOOT_S = (0.01, 0.3)
_REAP_S = (0.0001, 0.005)  # from a death to its proof
_ACTORS: dict[str, Any] = {
    "cache_directory": lambda birth, make_mailbox: DirectoryActor(birth, make_mailbox, _now_s),
    "speculation": SpeculationActor,
    "worker": Worker,
    "scheduler": SchedulerActor,
    "gateway": GatewayActor,
}


class SimulatedProcess(ChildProcess):
    """One process. `actor` is the real actor in it, once it was born."""

    def __init__(self, spawner: SimulatedSpawner, name: str, pid: int, on_exit: OnExit) -> None:
        self.pid, self.on_exit = pid, on_exit
        self.exit: ExitStatus | None = None
        self.name, self.life = name, SimulatedLife(name)
        self.life.on_own_death = lambda: self.die(-9)
        self.birth: Birth | None = None
        self.actor: Any = None
        self.on_death: list[Callable[[], None]] = []
        self._spawner = spawner
        self.context = copy_context()
        self.context.run(PROCESS.set, self.life)
        self._supervisor_context = copy_context()

    @property
    def is_alive(self) -> bool:
        """False from the moment of its death, which is proven a little later."""
        return self.life.state is not LifeState.DEAD

    def send_birth(self, birth: bytes) -> None:
        self.birth = read_birth(birth)
        loop = self._spawner.loop
        loop.call_later(self._spawner.chance.uniform(*_BOOT_S), self._begin, context=self.context)

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
        if self.life.state is LifeState.PAUSED:
            self._spawner.loop.resume(self.life)

    def die(self, returncode: int) -> None:
        """End at once, without a message. The supervisor gets the proof a little later."""
        if not self.is_alive:
            return
        self.life.state = LifeState.DEAD
        self.life.held = []
        SimulatedWriter.close_files_of(self.life)
        for call in self.on_death:
            call()
        delay_s = self._spawner.chance.uniform(*_REAP_S)
        self._spawner.loop.call_later(delay_s, self._reap, returncode, context=self._supervisor_context)

    def _reap(self, returncode: int) -> None:
        self.exit = decode_exit(returncode)
        self.on_exit(self.exit)

    def _begin(self) -> None:
        assert self.birth is not None
        self.actor = _ACTORS[role_of(self.name)](self.birth, self._spawner.network.mailbox)
        task = self._spawner.loop.create_task(self.actor.run())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[int]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._spawner.errors.append(error)
        self.die(task.result() if error is None and not task.cancelled() else 1)


class SimulatedSpawner(Spawner):
    """Starts simulated processes. `errors`: exceptions that ended an actor outside of its handlers."""

    def __init__(self, loop: VirtualLoop, network: SimulatedNetwork, chance: random.Random) -> None:
        self.loop, self.network, self.chance = loop, network, chance
        self.processes: list[SimulatedProcess] = []
        self.errors: list[BaseException] = []

    def spawn(self, spec: ChildSpec, on_exit: OnExit, warm_ups: tuple[str, ...] = ()) -> SimulatedProcess:
        process = SimulatedProcess(self, spec.name, 1000 + len(self.processes), on_exit)
        self.processes.append(process)
        return process

    def ran_out_of_memory(self) -> bool:
        return False

    def retry_writes(self) -> None:
        """There is no disk."""

    def newest(self, name: str) -> SimulatedProcess | None:
        """The living process that is this child now, or None."""
        born = (p for p in reversed(self.processes) if p.name == name and p.birth is not None)
        process = next(born, None)
        return process if process is not None and process.is_alive else None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
