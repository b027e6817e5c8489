"""Kills one process of a server every so often, of every role by turns, and waits until its successor is ready."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ops.bench.campaign.processes import Processes, Victim
from ops.bench.day.visits import Death
from supervisor.operator.calls import ask_status

_CUSTODIAN = "custodian"


class Killer:
    """Kills until it is told to end. `deaths`: all so far, in order."""

    def __init__(self, run_dir: Path, every_s: float, roles: Sequence[str], seed: int, say: Callable[[str], None]) -> None:
        """`roles`: to kill; empty: all of this server. Raises: NoServer."""
        self._chance = random.Random(seed)
        self._processes = Processes(run_dir, ask_status(run_dir), self._chance)
        self._roles = tuple(roles) or tuple(self._processes.roles)
        self._every_s, self._say = every_s, say
        self.deaths: list[Death] = []

    async def run(self, until_s: float) -> None:
        """Kill every `every_s` seconds until this time of the monotonic clock, but not before the last one is repaired."""
        left: list[str] = []
        next_s = time.monotonic() + self._every_s
        while next_s < until_s:
            await asyncio.sleep(max(next_s - time.monotonic(), 0.0))
            if not left:
                left = self._chance.sample(self._roles, len(self._roles))
            await self._kill(left.pop())
            next_s = max(next_s + self._every_s, time.monotonic())

    async def _kill(self, role: str) -> None:
        processes = self._processes
        try:
            had = await asyncio.to_thread(processes.custodians_of_gateways) if role == _CUSTODIAN else {}
            victim = await asyncio.to_thread(processes.pick, role)
        except TimeoutError:
            self._say(f"no {role} was ready to be killed")
            return
        death = self._inflict(role, victim)
        if death is None:
            return
        try:
            await asyncio.to_thread(processes.next_ready, victim)
        except TimeoutError:
            self._say(f"{victim.name}: no successor came")
            return
        death.repaired_s = time.monotonic() - death.at_s
        if role == _CUSTODIAN:  # a gateway whose connections it does not hold yet must not die
            await asyncio.to_thread(processes.wait_held, had)
        self._say(f"{victim.name} killed, ready again after {death.repaired_s:.2f} s")

    def _inflict(self, role: str, victim: Victim) -> Death | None:
        """Kill it now; None if it was dead already."""
        at_s = time.monotonic()
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        if self.deaths:
            self.deaths[-1].until_s = at_s
        self.deaths.append(Death(role, at_s))
        return self.deaths[-1]
