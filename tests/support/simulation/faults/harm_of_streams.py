"""One harm at a chosen moment while streams run in virtual time, and when each stream had its tokens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
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
from tests.support.simulation.processes import SimulatedProcess
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.virtual_loop import LifeState

N_STREAMS = 6
_DEADLINE_S = 60.0
_STEP_S = 0.1


class HarmOfStreams(Harm):
    """Waits for the streams of `simulate_streams`, harms processes and looks at what follows. All times are virtual."""

    tokens_s: ClassVar[dict[str, list[float]]]  # by request: when its tokens came

    async def until_all(self, at_s: float, n_events: int = 1) -> None:
        """Wait until every stream has had new tokens so many times after `at_s`. Raises: AssertionError after a minute."""
        await self.until(
            lambda: (
                len(self.tokens_s) == N_STREAMS
                and all(sum(came_s > at_s for came_s in times) >= n_events for times in self.tokens_s.values())
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises: AssertionError after a minute."""
        end_s = self._loop.time() + _DEADLINE_S
        while not condition():
            assert self._loop.time() < end_s, f"it did not happen: {self.tokens_s}"
            await asyncio.sleep(0.01)

    def stop(self, name: str, for_s: float) -> int:
        """Stop a process for a while, as SIGSTOP and SIGCONT do. Returns its incarnation, 0 for the supervisor's."""
        if name == SUPERVISOR:
            life = self._parent.life
            life.state = LifeState.PAUSED
            self._loop.call_later(for_s, self._loop.resume, life)
            return 0
        process = self.newest(name)
        assert process.spawn_spec is not None
        process.pause()
        self._loop.call_later(for_s, process.resume)
        return process.spawn_spec.incarnation

    def kill(self, name: str) -> None:
        """End a process as SIGKILL does."""
        if name == SUPERVISOR:
            self._parent.kill()
        else:
            self.newest(name).die(-9)

    def newest(self, name: str) -> SimulatedProcess:
        """The newest process of an actor."""
        process = self._machine.newest(name)
        assert process is not None
        return process

    def longest_s(self, began_s: float) -> float:
        """The longest time without tokens of any stream that ended after `began_s`."""
        pairs = [pair for times in self.tokens_s.values() for pair in pairwise(times)]
        return max(later_s - earlier_s for earlier_s, later_s in pairs if later_s > began_s)


def simulate_streams(
    harm: type[HarmOfStreams],
    monkeypatch: pytest.MonkeyPatch,
    max_tokens: int = 80,
    client_kind: ClientKind = ClientKind.IN_PROCESS,
    n: int = 1,
) -> None:
    """Runs a server with a vault, streams of `n` answers of so many tokens, and this harm. Raises: AssertionError for a broken
    promise.
    """
    model = WorkerSettings(max_length=512, n_slots=8, max_step_tokens=128, hash_chain_pages=200)
    config = ServerConfig(
        model="hash-chain", gpus=0, tp=1, replicas=1, max_length=512, worker=model, vault=True, gateway=GatewaySettings()
    )
    monkeypatch.setattr(HarmOfStreams, "tokens_s", {}, raising=False)
    note = Client.note

    def spied_note(self: Client, kind: Kind, *arguments: Any, **fields: Any) -> None:
        HarmOfStreams.tokens_s.setdefault(self.planned.request, []).append(asyncio.get_running_loop().time())
        note(self, kind, *arguments, **fields)

    def planned_requests(chance: random.Random, *sizes: Any) -> Iterator[PlannedRequest]:
        for index in range(N_STREAMS):
            yield PlannedRequest(
                f"request-{index}", "gateway/0", [index] * 20, max_tokens, seed=n - 1, n=n, client_kind=client_kind
            )

    monkeypatch.setattr(Client, "note", spied_note)
    monkeypatch.setattr(world, "config_of", lambda chance, scenario: config)
    monkeypatch.setattr(world, "planned_requests", planned_requests)
    monkeypatch.setattr(world, "Harm", harm)
    monkeypatch.setattr(threads, "_STEP_S", (0.9 * _STEP_S, _STEP_S))
    monkeypatch.setattr(network, "_SLOW_SHARE", 0.0)
    outcome = world.simulate(3, Scenario(n_deaths=0, n_pauses=1, n_clients=N_STREAMS))
    assert not outcome.problems
