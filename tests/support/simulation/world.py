"""One simulated run: a server of real actors under real supervisors, clients, and faults, all drawn from one seed.

seed --> settings, requests of clients, faults, delays --> run in virtual time --> problems (none, if all promises hold)
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import structlog

from actors.gateway import gateway_actor
from actors.gateway.dispatch.balancing.prefix import PrefixFirst
from actors.gateway.dispatch.balancing.strategy import Choice, ChoiceReason
from actors.scheduler.planning.decoding.decode_planner import DecodePlanner
from actors.scheduler.planning.load_cost import LoadCost
from messages.caches.page_moves import MOST_MOVED
from messages.child import Child
from messages.client import link as client_link
from messages.ids import replica_of, role_of
from messages.outcomes import ExitCode
from messages.run_dir import zeromq_endpoint
from tests.support.simulation.clients.client import Client, InProcessClient
from tests.support.simulation.clients.embedding_client import EmbeddingClient
from tests.support.simulation.clients.history import History
from tests.support.simulation.clients.http_client import HttpClient
from tests.support.simulation.clients.http_connection import make_connections_countable
from tests.support.simulation.clients.planned_requests import (
    ClientKind,
    PlannedRequest,
    asked_again,
    asked_alike,
    planned_requests,
    with_long_starts,
)
from tests.support.simulation.clients.returning import returning
from tests.support.simulation.clients.zmq_client import ZmqClient
from tests.support.simulation.copies.beside import make_copies_beside
from tests.support.simulation.copies.companions import Companions
from tests.support.simulation.copies.runs_ahead import watch_runs_ahead
from tests.support.simulation.edges import Edges
from tests.support.simulation.faults.accounts import TenantCheck, are_settled, with_tenants
from tests.support.simulation.faults.disk_tier import make_disks_virtual
from tests.support.simulation.faults.harm import Harm
from tests.support.simulation.kernel import Kernel, make_secrets_repeatable
from tests.support.simulation.network import Loss, SimulatedNetwork
from tests.support.simulation.processes import Machine, SimulatedProcess, make_processes_findable
from tests.support.simulation.scenario import FALLBACK_VOCABULARY, FAULTS_S, Outcome, Scenario, config_of, scenario_of
from tests.support.simulation.supervisors import SimulatedParent
from tests.support.simulation.threads import SimulatedWriter, make_threads_virtual
from tests.support.simulation.vault import AdoptionCheck, make_vaults_virtual
from tests.support.simulation.virtual_loop import PROCESS, Died, LifeState, SimulatedLife, VirtualLoop
from tests.support.simulation.zeromq import Sockets

_START_S, _END_S, _SETTLE_S, _ROLL_S = 30.0, 240.0, 30.0, 400.0
_UNIX_S = 1.8e9
Patch = Callable[[Any, str, Any], None]


def simulate(seed: int, scenario: Scenario | None = None) -> Outcome:
    """Run one seed to its end. scenario: None for the one that belongs to the seed."""
    loop, scenario = VirtualLoop(), scenario or scenario_of(seed)
    with TemporaryDirectory(prefix="tg-", dir=_fast_directory()) as folder, ExitStack() as patches:

        def patched(owner: Any, name: str, value: Any) -> None:
            patches.enter_context(patch.object(owner, name, value))

        patched(time, "monotonic", loop.time)
        log = patches.enter_context(structlog.testing.capture_logs())
        if seed % 4:  # simulations have few sequences
            patched(DecodePlanner, "least_rows", 1)
        logging.disable()  # of uvicorn, which tells of tasks that were killed
        patches.callback(logging.disable, logging.NOTSET)
        world = World(seed, scenario, loop, patched, Path(folder), log)
        patched(time, "time", lambda: _UNIX_S + loop.time() + world.harm.clock_ahead_s)
        patched(time, "time_ns", lambda: int(time.time() * 1e9))
        try:
            return loop.run_until_complete(world.run())
        finally:
            world.forget()


class World:
    """The state of one run; see `simulate`."""

    def __init__(self, seed: int, scenario: Scenario, loop: VirtualLoop, patch: Patch, folder: Path, log: list[Any]) -> None:
        self._seed, self._scenario, self._loop, self._log = seed, scenario, loop, log
        self._chance = chance = random.Random(seed)
        self._folder = folder
        self._edges = Edges(chance, self._kill, lambda role: self._harmed.add(role))
        self._harmed: set[str] = set()  # roles to which something was done
        self._kernel = Kernel(loop, self._edges, patch)
        self._network = SimulatedNetwork(chance, self._edges)
        self._machine = Machine(loop, self._kernel, self._network, chance)
        self._parent = SimulatedParent(self._machine, folder)
        self._faults: list[str] = []
        self.harm = Harm(seed, scenario, self._machine, self._parent, self._harmed, make_disks_virtual(patch, seed))
        self._problems: list[str] = []
        self._history = History(FALLBACK_VOCABULARY if scenario.has_fallback else 0)
        self._sockets = Sockets(loop, chance, self._edges, lambda: self._network.loss)
        self._sockets.make_virtual(patch)
        # a finalizer of a client that never ends would keep its sockets, and with them this world, until the process ends
        patch(client_link, "weakref", SimpleNamespace(finalize=lambda *_: SimpleNamespace(detach=lambda: None)))
        self._machine.on_death, self.harm.cut_client = self._sockets.process_died, self._sockets.cut
        self._adoptions = AdoptionCheck(lambda: self._machine.ready("worker"))
        self._adoptions.watch(patch)
        make_threads_virtual(patch, chance, self._edges)
        make_vaults_virtual(patch)
        make_connections_countable(patch)
        make_processes_findable(patch, self._machine)
        make_secrets_repeatable(patch, seed)
        watch_runs_ahead(patch, self.harm.copies)
        if scenario.copies_beside:
            make_copies_beside(patch, self.harm.copies)
        self._tenants = TenantCheck()
        if scenario.has_tenants:
            self._tenants.watch(patch)
        patch(gateway_actor, "load_embedding_text", lambda settings: None)  # clients ask with tokens
        if scenario.n_exchange_places:  # so that prefixes are often at the other replica
            exchanging = random.Random(f"replicas {seed}")
            patch(
                PrefixFirst, "choose", lambda self, candidates, n: Choice(exchanging.choice(candidates).name, ChoiceReason.LOAD)
            )
        patch(LoadCost, "most_pages", random.Random(f"pieces {seed}").choice((1, 3, MOST_MOVED)))  # loads take no virtual time
        patch(Child, "fault", self.note_fault(Child.fault))

    async def run(self) -> Outcome:
        """The whole run."""
        began_s = self._loop.time()
        config = config_of(self._chance, self._scenario)
        self._parent.start(with_tenants(config) if self._scenario.has_tenants else config)
        await self._until(lambda: self._parent.is_serving, _START_S, "the server is not ready")
        sizes = (self._scenario.n_clients, self._gateways(), FAULTS_S / 2, self._scenario.vocabulary)
        planned_by_all = planned_requests(self._chance, *sizes)
        if self._scenario.asks_alike:
            planned_by_all = asked_alike(planned_by_all, random.Random(f"alike {self._seed}"))
        if self._scenario.n_exchange_places:
            planned_by_all = with_long_starts(planned_by_all, random.Random(f"starts {self._seed}"))
        if self._scenario.are_returning:
            planned_by_all = returning(planned_by_all, random.Random(f"returning {self._seed}"))
        elif self._scenario.n_disk_places:
            planned_by_all = asked_again(planned_by_all, random.Random(f"again {self._seed}"), FAULTS_S / 2)
        companions = Companions(self._seed, self._client, self._scenario.vocabulary)
        embedding_clients, work = self._embedding_clients(), companions.work
        companions.begin([self._client(planned) for planned in planned_by_all])
        work += [asyncio.ensure_future(client.run()) for client in embedding_clients]
        if self._scenario.are_returning:
            self.harm.copies.act_beside = companions.run_began
        self._network.loss = self._scenario.loss
        await self.harm.run()
        self._network.loss = Loss()
        await self._until(lambda: all(task.done() for task in work), _END_S, "a client still waits")
        self._problems += self._history.problems + [problem for one in embedding_clients for problem in one.problems]
        self._problems += [repr(task.exception()) for task in work if task.done() and task.exception() is not None]
        if self._scenario.is_calm:
            dead = [process.name for process in self._machine.processes if not process.is_alive]
            self._problems += [f"{name} was killed, although nothing was wrong with it" for name in dead]
        if not self._problems:
            await self._stop()
        self._problems += self._faults + self._machine.problems + self._adoptions.problems
        self._problems += [repr(error) for error in self._machine.errors]
        self._problems += [str(error.get("exception") or error.get("message")) for error in self._loop.errors]
        return self._outcome(self._loop.time() - began_s)

    async def _stop(self) -> None:
        """After the last answer: the server becomes idle, and stops in order."""
        await self._until(lambda: not self._parent.is_rolling, _ROLL_S, "the rolling restart does not end")
        await self._until(self._is_idle, _SETTLE_S, "the server is not idle after the last answer")
        is_exact = "gateway" not in self._harmed and not (self._scenario.n_clock_jumps or self._scenario.n_rolls)
        self._problems += self._tenants.problems(self._machine.ready("accounts"), is_exact=is_exact)
        self._parent.stop()
        ending = self._parent.ending
        await self._until(ending.done, _SETTLE_S, "the server does not stop")
        if ending.done() and ending.result() not in (ExitCode.DONE, ExitCode.DEADLINE):
            self._problems.append(f"exit status: expected 0 or 7, got {ending.result()}")
        if any(process.is_alive for process in self._machine.processes):
            self._problems.append("a process is left after the end of the server")

    def _outcome(self, virtual_s: float) -> Outcome:
        facts = (virtual_s, self._network.n_carried, len(self._machine.processes), self._history.seen)
        digest = blake2b(repr(facts).encode(), digest_size=8).hexdigest()
        n_deaths = self.harm.n_deaths + self._parent.n_deaths
        return Outcome(
            self._seed,
            self._problems,
            digest,
            self._network.n_carried,
            n_deaths,
            virtual_s,
            self._log,
            self._edges.hit,
            self._edges.reached,
            self._adoptions.n_adopted,
            self._adoptions.n_kept,
        )

    def _kill(self, life: SimulatedLife) -> None:
        self.harm.n_deaths += 1
        life.on_own_death()

    def note_fault(self, original: Callable[..., int]) -> Callable[..., int]:
        """`Child.fault`, which also writes the error down: no actor may fault, whatever happens around it."""

        def fault(child: Child, doing: str, error: BaseException) -> int:
            life = PROCESS.get()
            if life is not None and life.state is LifeState.DEAD:
                raise Died from error  # it died at an edge, and what cleaned up has failed
            if "simulated" not in str(error):
                self._faults.append(f"{child.spawn_spec.name} faulted while {doing}: {error!r}")
            return original(child, doing, error)

        return fault

    def forget(self) -> None:
        """End what is left of all processes without running it."""
        for task in self._loop.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done() and (coroutine := task.get_coro()) is not None:
                with suppress(BaseException):
                    coroutine.close()  # type: ignore[union-attr]
        self._kernel.forget_all()
        self._loop.close()

    # -- the server -----------------------------------------------------------------------------------------------

    def _client(self, planned: PlannedRequest) -> Client:
        if planned.client_kind is ClientKind.IN_PROCESS:
            return InProcessClient(planned, self._history, self._chance, self._loop, self._gateway)
        if planned.client_kind is ClientKind.ZEROMQ:
            endpoints = [zeromq_endpoint(self._parent.run_dir, replica_of(name)) for name in self._gateways()]
            return ZmqClient(planned, self._history, self._chance, self._loop, self._sockets, endpoints)
        client = HttpClient(planned, self._history, self._chance, self._folder, self._folder / "http")
        client.may_be_cut = lambda: planned.client_kind is not ClientKind.PLAIN or self._may_cut() or client.may_lose_events()
        # the disk has refused or lost steps, and several sequences come in another order from the next process
        client.may_lose_events = lambda: planned.n > 1 and (SimulatedWriter.n_refused > 0 or self.harm.n_flips > 0)
        return client

    def _embedding_clients(self) -> list[EmbeddingClient]:
        chance, gateways = random.Random(f"embedding {self._seed}"), self._gateways()
        numbers = range(self._scenario.n_embedding_clients)
        return [EmbeddingClient(n, chance.choice(gateways), chance, self._loop, self._gateway) for n in numbers]

    def _gateways(self) -> list[str]:
        """The names of all gateways."""
        return sorted({p.name for p in self._machine.processes if role_of(p.name) == "gateway"})

    def _may_cut(self) -> bool:
        """True if a plain connection may be cut: the custodian was out of service while a gateway was."""
        return self._machine.has_lost_connections

    def _gateway(self, name: str) -> SimulatedProcess | None:
        """The process of a gateway that serves, or None."""
        process = self._machine.newest(name)
        is_ready = process is not None and process.actor is not None and process.actor.child.is_ready
        return process if is_ready else None

    def _is_idle(self) -> bool:
        """No sequence is held by a gateway or a scheduler, the custodian holds no socket, and every child serves."""
        managers = [actor.manager for actor in self._machine.ready("gateway")]
        is_done = all(manager.gate.n_active == 0 and manager.gate.queued.shares.n_held == 0 for manager in managers)
        is_planned = all(
            not actor.statistics().get("running") and not actor.statistics().get("waiting")
            for actor in self._machine.ready("scheduler")
        )
        is_let_go = all(not actor.statistics()["sockets"] for actor in self._machine.ready("custodian"))
        is_settled = are_settled(self._machine.ready("accounts"))
        return is_done and is_planned and is_let_go and is_settled and self._parent.is_serving

    async def _until(self, condition: Callable[[], bool], deadline_s: float, otherwise: str) -> None:
        end_s = self._loop.time() + deadline_s
        while not condition():
            if self._loop.time() > end_s:
                self._problems.append(f"{otherwise} after {deadline_s:g} s")
                return
            await asyncio.sleep(0.05)


def _fast_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
