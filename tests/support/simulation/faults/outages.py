"""What ends a whole simulated server, and its next start in the same directories.

stop    the operator stops it (SIGTERM), with some time to finish answers, or none
drain   the operator drains it; once it is drained, it is stopped
death   all its processes die at the same instant, as in a loss of power
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from messages.outcomes import ExitCode
from tests.support.simulation.processes import Machine
from tests.support.simulation.scenario import Outage
from tests.support.simulation.supervisors import SimulatedParent

_DRAIN_S = (0.0, 0.5, 3.0, 60.0)
_DOWN_S = (0.02, 3.0)  # from the end of the server to its next start
_END_S = 90.0  # the longest drain, and a stop
_AGAIN_S, _POLL_S = 0.2, 0.01


class Outages:
    """Carries out outages, one after the other."""

    def __init__(self, machine: Machine, parent: SimulatedParent) -> None:
        self._machine, self._parent, self._chance = machine, parent, machine.chance
        self._turn = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, outage: Outage) -> None:
        """Let this happen now, or when the outage before is over."""
        self._tasks.append(asyncio.ensure_future(self._happen(outage)))

    async def wait(self) -> None:
        """Wait until all of them are over."""
        await asyncio.gather(*self._tasks)

    async def _happen(self, outage: Outage) -> None:
        async with self._turn:
            self._machine.has_lost_connections = True
            if outage is Outage.DEATH:
                self._parent.die_with_all()
            else:
                await self._end_in_order(outage)
            await asyncio.sleep(self._chance.uniform(*_DOWN_S))
            self._parent.start_again()

    async def _end_in_order(self, outage: Outage) -> None:
        drain_s = self._chance.choice(_DRAIN_S)
        if outage is Outage.DRAIN:
            await self._drain(drain_s)
        self._parent.stop(0.0 if outage is Outage.DRAIN else drain_s)
        ending = self._parent.ending
        await self._until(ending.done, f"the server does not end after a {outage.value}")
        if not ending.done():
            self._parent.die_with_all()
        elif ending.result() not in (ExitCode.DONE, ExitCode.DEADLINE):
            self._machine.problems.append(f"exit status after a {outage.value}: expected 0 or 7, got {ending.result()}")
        if any(process.is_alive for process in self._machine.processes):
            self._machine.problems.append(f"a process is left after a {outage.value}")

    async def _drain(self, drain_s: float) -> None:
        """Order it until the server has taken the order; wait until it is over."""
        while not self._parent.is_draining:
            self._parent.drain(drain_s)
            await asyncio.sleep(_AGAIN_S)
        end_s = self._machine.loop.time() + drain_s
        await self._until(lambda: self._parent.is_drained or self._machine.loop.time() > end_s, "the drain does not end")
        if self._parent.supervisor is not None and not self._parent.is_draining:
            self._machine.problems.append("the next supervisor does not go on with the order to drain")

    async def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        end_s = self._machine.loop.time() + _END_S
        while not condition():
            if self._machine.loop.time() > end_s:
                self._machine.problems.append(otherwise)
                return
            await asyncio.sleep(_POLL_S)
