"""Sequences leave a replica that cannot compute within 20 ms of virtual time, whatever has happened to it.

The processes of ranks take as long to end as those that use a GPU: their deaths are proven only after 0.15 s or more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from actors.gateway.settings import GatewaySettings
from gpu_workers.process.worker import Worker
from gpu_workers.settings import WorkerSettings
from messages.generation.sequences import Submit
from messages.ids import STANDBY_SEAT, replica_of, role_of
from messages.lifecycle.lifecycle import Stop
from supervisor.config.server_config import ServerConfig, SupervisorSettings
from tests.support.simulation import network, processes, threads, world
from tests.support.simulation.clients.planned_requests import ClientKind, PlannedRequest
from tests.support.simulation.edges import Fault
from tests.support.simulation.faults.harm import Harm
from tests.support.simulation.network import SimulatedMailbox
from tests.support.simulation.processes import SimulatedProcess
from tests.support.simulation.scenario import Scenario

pytestmark = pytest.mark.seeds

_MOVED_S = 0.02
_BEGUN_S = 10.0
_N_CLIENTS = 6
_MODEL = WorkerSettings(max_length=512, n_slots=8, max_step_tokens=64, hash_chain_pages=200)


@dataclass
class Observer(Harm):
    """Lets something happen to replica 0 while it runs sequences, and notes when they are submitted to the other replica."""

    harm: ClassVar[Callable[[Observer], None]]
    seen: ClassVar[Observer]
    has_standby: ClassVar[bool]
    max_tokens: ClassVar[int]  # of each answer, which takes 45 ms for each of them
    fact_s: float = 0.0  # when it was known
    moved_s: dict[str, float] = field(default_factory=dict)  # by request
    left: set[str] = field(default_factory=set)  # the requests that replica 0 had at that time

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moved_s, self.left = {}, set()
        Observer.seen = self

    async def run(self) -> None:
        end_s = self._loop.time() + _BEGUN_S
        while not (self._at("scheduler/0") and self._at("scheduler/1") and self._is_standby_ready()):
            assert self._loop.time() < end_s, "expected both replicas to run sequences"
            await asyncio.sleep(0.01)
        type(self).harm(self)

    def _at(self, scheduler: str) -> set[str]:
        """The requests that gateways have at a scheduler."""
        books = [gateway.manager.dispatcher.book for gateway in self._machine.ready("gateway")]
        return {sequence.spec.request for book in books for sequence in book.at(scheduler) if sequence.is_taken}

    def _is_standby_ready(self) -> bool:
        """Every rank that was started is ready, and every seat has one."""
        ranks = {p.name for p in self._machine.processes if role_of(p.name) == "worker"}
        is_there = not self.has_standby or any(name.endswith(STANDBY_SEAT) for name in ranks)
        return is_there and len(self._machine.ready("worker")) == len(ranks)

    def note_fact(self) -> None:
        """It is known now that replica 0 cannot compute."""
        if not self.fact_s:
            self.fact_s, self.left = self._loop.time(), self._at("scheduler/0")

    def note_submit(self, name: str, submit: Submit) -> None:
        """A gateway submits a sequence."""
        if name == "scheduler/1" and self.fact_s and submit.request in self.left:
            self.moved_s.setdefault(submit.request, self._loop.time())

    def rank(self, name: str) -> SimulatedProcess:
        """The process of a rank."""
        process = self._machine.newest(name)
        assert process is not None
        return process

    # -- what may happen ------------------------------------------------------------------------------------------

    def rank_killed(self) -> None:
        """From outside."""
        self.note_fact()
        self.rank("worker/0.0").die(-9)

    def rank_crashed(self) -> None:
        """By a computation."""
        self.note_fact()
        self.rank("worker/0.0").die(-11)

    def rank_suspended(self) -> None:
        """For good. It is known when the supervisor kills it."""
        self.rank("worker/0.0").pause()

    def rank_hung(self) -> None:
        """In a step. It is known when the supervisor kills it."""
        self._machine.edges.aim("worker begins a step", Fault.HANGS, nth=0)

    def device_failed(self) -> None:
        """In a step. It is known when the rank reports it."""
        self._machine.edges.aim("worker begins a step", Fault.FAILS, nth=0)

    def rank_replaced(self) -> None:
        """By a rolling restart. It is known when the rank is told to end."""
        self._parent.roll()

    def scheduler_killed(self) -> None:
        """From outside."""
        self.note_fact()
        self.rank("scheduler/0").die(-9)


def _planned_requests(chance: random.Random, *sizes: Any) -> Iterator[PlannedRequest]:
    for index in range(_N_CLIENTS):
        prompt = [index] * 20
        yield PlannedRequest(
            f"request-{index}", "gateway/0", prompt, Observer.max_tokens, seed=0, client_kind=ClientKind.IN_PROCESS
        )


def _spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note the facts and the submissions. Only replica 0 is harmed at an edge."""
    send, kill, fault = SimulatedMailbox.send, SimulatedProcess.kill, Worker.on_fault
    meets = threads.SimulatedStepThread._meets

    def is_harmed(name: str) -> bool:
        return role_of(name) == "worker" and replica_of(name) == 0

    def spied_send(self: SimulatedMailbox, name: str, message: Any, *trace: bytes) -> None:
        if isinstance(message, Submit):
            Observer.seen.note_submit(name, message)
        if isinstance(message, Stop) and is_harmed(name):
            Observer.seen.note_fact()
        send(self, name, message, *trace)

    def spied_kill(self: SimulatedProcess) -> None:
        if is_harmed(self.name):
            Observer.seen.note_fact()
        kill(self)

    def spied_fault(self: Worker, doing: str, error: BaseException) -> None:
        Observer.seen.note_fact()
        fault(self, doing, error)

    def spied_meets(self: Any, met: Fault | None) -> bool:
        if met is not None and not is_harmed(self._events.child.spawn_spec.name):
            self.edges.aim("worker begins a step", met, nth=0)
            return False
        return meets(self, met)

    monkeypatch.setattr(SimulatedMailbox, "send", spied_send)
    monkeypatch.setattr(SimulatedProcess, "kill", spied_kill)
    monkeypatch.setattr(Worker, "on_fault", spied_fault)
    monkeypatch.setattr(threads.SimulatedStepThread, "_meets", spied_meets)


def observe(monkeypatch: pytest.MonkeyPatch, harm: Callable[[Observer], None], **settings: Any) -> Observer:
    """One run in which this happens to replica 0. Every answer is right."""
    config = ServerConfig(
        model="hash-chain",
        gpus=0,
        replicas=2,
        max_length=512,
        worker=_MODEL,
        gateway=GatewaySettings(orphan_s=15.0),
        **settings,
    )
    monkeypatch.setattr(world, "config_of", lambda chance, scenario: config)
    monkeypatch.setattr(world, "planned_requests", _planned_requests)
    monkeypatch.setattr(world, "Harm", Observer)
    monkeypatch.setattr(Observer, "harm", harm, raising=False)
    monkeypatch.setattr(Observer, "has_standby", settings.get("standby", False), raising=False)
    monkeypatch.setattr(Observer, "max_tokens", 400 if harm in _LASTING or "standby" in settings else 60, raising=False)
    monkeypatch.setattr(threads, "_STEP_S", (0.04, 0.05))  # so that streams last for long with few steps
    monkeypatch.setattr(network, "_SLOW_SHARE", 0.0)
    monkeypatch.setitem(processes.SLOW_REAP_S, "worker", (0.15, 0.2))
    _spy(monkeypatch)
    outcome = world.simulate(7, Scenario(n_deaths=1, n_clients=_N_CLIENTS, tp=settings["tp"]))
    assert not outcome.problems
    assert Observer.seen.left
    return Observer.seen


_HARMS = [
    Observer.rank_killed,
    Observer.rank_crashed,
    Observer.rank_suspended,
    Observer.rank_hung,
    Observer.device_failed,
    Observer.scheduler_killed,
    pytest.param(Observer.rank_replaced, marks=pytest.mark.long),
]


_LASTING = (Observer.rank_replaced,)  # the restart of other processes comes first


@pytest.mark.parametrize("harm", _HARMS, ids=lambda harm: getattr(harm, "__name__", None))
@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.long)])
def test_sequences_leave_a_replica_that_cannot_compute(
    harm: Callable[[Observer], None], tp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = observe(monkeypatch, harm, tp=tp)
    assert seen.moved_s.keys() == seen.left
    assert max(seen.moved_s.values()) - seen.fact_s <= _MOVED_S


def test_sequences_leave_a_replica_that_is_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = observe(monkeypatch, Observer.rank_killed, tp=1, supervisor=SupervisorSettings(gang_restarts=0))
    assert seen.moved_s.keys() == seen.left
    assert max(seen.moved_s.values()) - seen.fact_s <= _MOVED_S


def test_sequences_wait_for_a_standby_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all that is computed, and takes over as soon as the death is proven."""
    assert not observe(monkeypatch, Observer.rank_killed, tp=2, standby=True).moved_s
