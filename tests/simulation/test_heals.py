"""A process that was stopped for seconds and continues, or is replaced meanwhile: within a second every stream flows again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from actors.gateway.settings import GatewaySettings
from gpu_workers.settings import WorkerSettings
from messages.ids import SUPERVISOR
from supervisor.config.server_config import ServerConfig
from tests.support.simulation import network, threads, world
from tests.support.simulation.clients.client import Client
from tests.support.simulation.clients.history import Kind
from tests.support.simulation.clients.planned_requests import ClientKind, PlannedRequest
from tests.support.simulation.faults.harm import Harm
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.virtual_loop import LifeState

pytestmark = pytest.mark.seeds

_HEALED_S = 1.0  # virtual time
_DEADLINE_S = 60.0
_N_STREAMS = 6
_STEP_S = 0.1
_NEEDED = ("gateway/0", "scheduler/0", "worker/0.0")  # streams stand still without them
_OTHERS = ("cache_directory/0", "speculation/0", "custodian/0", "vault/0", SUPERVISOR)
_LONG = pytest.mark.long
_PAUSES = [
    *(pytest.param(name, 10.0) for name in _NEEDED),
    *(pytest.param(name, for_s, marks=_LONG) for name in _NEEDED for for_s in (1.0, 5.0, 30.0)),
    *(pytest.param(name, for_s, marks=_LONG) for name in _OTHERS for for_s in (1.0, 5.0, 10.0, 30.0)),
]


class Pause(Harm):
    """Stops one process while all streams run, and waits until each has a new token after it has healed."""

    name: ClassVar[str]
    for_s: ClassVar[float]
    token_s: ClassVar[dict[str, float]]  # by request: when its newest token came
    healed_s: ClassVar[float]  # from the end of the pause, or the readiness of a next process, to the last stream's next token

    async def run(self) -> None:
        await self._until(lambda: len(self.token_s) == _N_STREAMS)
        began_s = self._loop.time()
        incarnation = self._stop()
        await self._until(lambda: self._loop.time() >= began_s + self.for_s or self._is_replaced(incarnation))
        back_s = self._loop.time()
        await self._until(lambda: all(at_s > back_s for at_s in self.token_s.values()))
        Pause.healed_s = self._loop.time() - back_s

    async def _until(self, condition: Any) -> None:
        end_s = self._loop.time() + _DEADLINE_S
        while not condition():
            assert self._loop.time() < end_s, f"it did not happen: {self.name}, {self.token_s}"
            await asyncio.sleep(0.01)

    def _stop(self) -> int:
        """Stop the process for a while. Returns its incarnation."""
        if self.name == SUPERVISOR:
            life = self._parent.life
            life.state = LifeState.PAUSED
            self._loop.call_later(self.for_s, self._loop.resume, life)
            return 0
        process = self._machine.newest(self.name)
        assert process is not None
        assert process.spawn_spec is not None
        process.pause()
        self._loop.call_later(self.for_s, process.resume)
        return process.spawn_spec.incarnation

    def _is_replaced(self, incarnation: int) -> bool:
        process = self._machine.newest(self.name) if self.name != SUPERVISOR else None
        is_new = process is not None and process.spawn_spec is not None and process.spawn_spec.incarnation > incarnation
        return is_new and process is not None and process.actor is not None and process.actor.child.is_ready


def _planned_requests(chance: random.Random, *sizes: Any) -> Iterator[PlannedRequest]:
    max_tokens = 400 if Pause.name == SUPERVISOR else 80  # nobody replaces a supervisor here before its pause is over
    for index in range(_N_STREAMS):
        yield PlannedRequest(
            f"request-{index}", "gateway/0", [index] * 20, max_tokens=max_tokens, seed=0, client_kind=ClientKind.IN_PROCESS
        )


@pytest.mark.parametrize(("name", "for_s"), _PAUSES)
def test_streams_flow_again_within_a_second(name: str, for_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = WorkerSettings(max_length=512, n_slots=8, max_step_tokens=128, hash_chain_pages=200)
    config = ServerConfig(
        model="hash-chain", gpus=0, tp=1, replicas=1, max_length=512, worker=model, vault=True, gateway=GatewaySettings()
    )
    for attribute, value in (("name", name), ("for_s", for_s), ("token_s", {}), ("healed_s", -1.0)):
        monkeypatch.setattr(Pause, attribute, value, raising=False)
    note = Client.note

    def spied_note(self: Client, kind: Kind, *arguments: Any, **fields: Any) -> None:
        Pause.token_s[self.planned.request] = asyncio.get_running_loop().time()
        note(self, kind, *arguments, **fields)

    monkeypatch.setattr(Client, "note", spied_note)
    monkeypatch.setattr(world, "config_of", lambda chance, scenario: config)
    monkeypatch.setattr(world, "planned_requests", _planned_requests)
    monkeypatch.setattr(world, "Harm", Pause)
    monkeypatch.setattr(threads, "_STEP_S", (0.9 * _STEP_S, _STEP_S))
    monkeypatch.setattr(network, "_SLOW_SHARE", 0.0)
    outcome = world.simulate(3, Scenario(n_deaths=0, n_pauses=1, n_clients=_N_STREAMS))
    assert not outcome.problems
    assert 0.0 <= Pause.healed_s <= _HEALED_S
