"""One simulated run: a server of real actors under the real supervisor, clients, and faults, all drawn from one seed.

seed --> settings, wishes of clients, faults, delays --> run in virtual time --> problems (none, if all promises hold)
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec
import structlog

from actors.gateway.settings import GatewaySettings
from messages.child import Child
from messages.ids import role_of
from supervisor.children.run_dir import RunDir
from supervisor.operator.display import Display
from supervisor.operator.orders import EXIT_REQUESTS_LEFT, EXIT_STOPPED
from supervisor.policy.child_spec import ChildSpec, Group
from supervisor.policy.placement import Placement
from supervisor.server import Server
from supervisor.supervisor import Supervisor
from supervisor.tree import StartFacts, build_tree
from tests.support.simulation.clients import Client
from tests.support.simulation.harm import Harm
from tests.support.simulation.network import Loss, SimulatedNetwork
from tests.support.simulation.processes import SimulatedProcess, SimulatedSpawner
from tests.support.simulation.scenario import Outcome, Scenario, config_of, scenario_of, wishes_of
from tests.support.simulation.threads import SimulatedWriter, make_threads_virtual
from tests.support.simulation.virtual_loop import PROCESS, SimulatedLife, VirtualLoop

_START_S, _END_S, _SETTLE_S = 30.0, 240.0, 30.0
_UNIX_S = 1.8e9


def simulate(seed: int, scenario: Scenario | None = None) -> Outcome:
    """Run one seed to its end. scenario: None for the one that belongs to the seed."""
    loop, scenario = VirtualLoop(), scenario or scenario_of(seed)
    with TemporaryDirectory(prefix="tg-", dir=_fast_directory()) as folder, ExitStack() as patches:

        def patched(owner: Any, name: str, value: Any) -> None:
            patches.enter_context(patch.object(owner, name, value))

        patched(time, "monotonic", loop.time)
        log = patches.enter_context(structlog.testing.capture_logs())
        chance = random.Random(seed)
        make_threads_virtual(patched, chance)
        world = World(seed, scenario, loop, chance, Path(folder), log)
        patched(time, "time", lambda: _UNIX_S + loop.time() + world.harm.clock_ahead_s)
        patched(time, "time_ns", lambda: int(time.time() * 1e9))
        patched(Child, "fault", world.note_fault(Child.fault))
        try:
            return loop.run_until_complete(world.run())
        finally:
            world.forget()


class World:
    """The state of one run; see `simulate`."""

    def __init__(
        self, seed: int, scenario: Scenario, loop: VirtualLoop, chance: random.Random, folder: Path, log: list[Any]
    ) -> None:
        self._seed, self._scenario, self._loop, self._chance, self._log = seed, scenario, loop, chance, log
        self._folder = folder
        self._network = SimulatedNetwork(chance)
        self._spawner = SimulatedSpawner(loop, self._network, chance)
        self._supervisor_life = SimulatedLife("supervisor")
        self._faults: list[str] = []
        self.harm = Harm(scenario, loop, chance, self._network, self._spawner, self._supervisor_life)
        self._problems: list[str] = []

    async def run(self) -> Outcome:
        """The whole run."""
        context = copy_context()
        context.run(PROCESS.set, self._supervisor_life)
        self._supervisor, ending = context.run(self._start)
        began_s = self._loop.time()
        await self._until(lambda: self._supervisor.state == "serving", _START_S, "the server is not ready")
        names = sorted({p.name for p in self._spawner.processes if role_of(p.name) == "gateway"})
        wishes = wishes_of(self._chance, self._scenario.n_clients, names)
        clients = [Client(wish, self._loop, self._chance, self._gateway) for wish in wishes]
        work = [asyncio.ensure_future(client.run()) for client in clients]
        self._network.loss = self._scenario.loss
        await self.harm.run()
        self._network.loss = Loss()
        await self._until(lambda: all(task.done() for task in work), _END_S, "a client still waits")
        self._problems += [f"{client.wish.request}: {text}" for client in clients for text in client.problems]
        if not self._problems:
            await self._until(self._is_idle, _SETTLE_S, "the server is not idle after the last answer")
            context.run(self._supervisor.orders.stop, 0.0)
            await self._until(ending.done, _SETTLE_S, "the server does not stop")
            if ending.done() and ending.result() not in (EXIT_STOPPED, EXIT_REQUESTS_LEFT):
                self._problems.append(f"exit status: expected 0 or 7, got {ending.result()}")
        self._problems += self._faults + [repr(error) for error in self._spawner.errors]
        self._problems += [str(error.get("exception") or error.get("message")) for error in self._loop.errors]
        virtual_s = self._loop.time() - began_s
        digest = hash((virtual_s, self._network.n_carried, len(self._spawner.processes)))
        return Outcome(self._seed, self._problems, digest, self._network.n_carried, self.harm.n_deaths, virtual_s, self._log)

    def note_fault(self, original: Callable[..., int]) -> Callable[..., int]:
        """`Child.fault`, which also writes the error down: no actor may fault, whatever happens around it."""

        def fault(child: Child, doing: str, error: BaseException) -> int:
            self._faults.append(f"{child.birth.name} faulted while {doing}: {error!r}")
            return original(child, doing, error)

        return fault

    def forget(self) -> None:
        """End what is left of all processes without running it."""
        self._loop.set_exception_handler(lambda loop, context: None)
        for task in self._loop.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done() and (coroutine := task.get_coro()) is not None:
                with suppress(BaseException):
                    coroutine.close()  # type: ignore[union-attr]
        for life, _ in list(SimulatedWriter.open_files):
            SimulatedWriter.close_files_of(life)
        self._loop.close()

    # -- the server -----------------------------------------------------------------------------------------------

    def _start(self) -> tuple[Supervisor, asyncio.Task[int]]:
        config = config_of(self._chance)
        placement = Placement(device="cpu", gpus=(), tp=1, replicas=config.replicas, dtype="")
        run_dir = RunDir.take(self._folder / "run")
        facts = StartFacts(
            state_dir=self._folder,
            run_dir=run_dir.path,
            listen_fd=-1,
            model_setting="hash-chain",
            model_name="hash-chain",
            model_length=512,
            placement=placement,
            cores=2,
        )
        groups = tuple(_without_sockets(group) for group in build_tree(config, facts))
        server = Server(groups, run_dir, config.supervisor, "hash-chain", "", "json", "error")
        display = Display("", "", "", is_json=True, is_live=False)
        supervisor = Supervisor(server, display, self._spawner, self._network.mailbox)
        return supervisor, self._loop.create_task(supervisor.run())

    def _gateway(self, name: str) -> SimulatedProcess | None:
        """The process of a gateway that serves, or None."""
        process = self._spawner.newest(name)
        is_ready = process is not None and process.actor is not None and process.actor.child.is_ready
        return process if is_ready else None

    def _is_idle(self) -> bool:
        """No sequence is held by a gateway or a scheduler, no page is held, and every child serves."""
        living = [p for p in self._spawner.processes if p.is_alive and p.actor is not None and p.actor.child.is_ready]
        gateways = [p.actor for p in living if role_of(p.name) == "gateway"]
        schedulers = [p.actor for p in living if role_of(p.name) == "scheduler"]
        is_done = all(actor.desk.n_active == 0 for actor in gateways)
        is_planned = all(
            not actor.statistics().get("running") and not actor.statistics().get("waiting") for actor in schedulers
        )
        return is_done and is_planned and self._supervisor.state == "serving"

    async def _until(self, condition: Callable[[], bool], deadline_s: float, otherwise: str) -> None:
        end_s = self._loop.time() + deadline_s
        while not condition():
            if self._loop.time() > end_s:
                self._problems.append(f"{otherwise} after {deadline_s:g} s")
                return
            await asyncio.sleep(0.05)


def _without_sockets(group: Group) -> Group:
    return replace(group, children=tuple(_without_socket(child) for child in group.children))


def _without_socket(child: ChildSpec) -> ChildSpec:
    """The child without the sockets that simulated clients do not use: HTTP, ZeroMQ, and those of the other gateways."""
    if role_of(child.name) != "gateway":
        return child
    settings = msgspec.json.decode(child.settings, type=GatewaySettings)
    bare = msgspec.structs.replace(settings, front_endpoint="", front_tcp_endpoint="", http_sockets=[])
    return replace(child, settings=msgspec.json.encode(bare), descriptors={})


def _fast_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
