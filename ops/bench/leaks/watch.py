"""The leak watch on one server: many requests, then many deaths of each actor, and nothing that lives on may grow.

First all processes are warmed. The requests come next: every process that lived through them is compared with itself. Then
one actor after the other is killed again and again under load, and all the others are compared with themselves: who serves
must not keep anything of the dead. Files are compared at the end; the journal has its own bound.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from messages.ids import role_of
from messages.lifecycle.tree import StatusReport, TreeState
from messages.run_dir import zeromq_endpoint
from ops.bench.leaks.clients import ClientPhase, Clients, WatchedServer, clients
from ops.bench.leaks.held_resources import (
    Allowance,
    Growth,
    HeldResources,
    descendants_of,
    files_under,
    gpu_bytes,
    growths,
    holding_of,
)
from ops.bench.leaks.memory_samples import MemorySamples
from ops.bench.own_server import OwnServer
from supervisor.directories.run_dir_files import read_pid
from supervisor.operator.calls import NoServer, ask_status

_SUPERVISOR = "supervisor/0"
_POLL_S = 0.05
_BACK_S = 120.0  # longest wait for a killed actor
_JOURNAL_BYTES = 96 << 20  # twice what lives in it and 32 MiB; hardly anything lives in it at the end
_FILES = 24
_REQUESTS_SHARE = 0.6  # of the time
_SAMPLE_EVERY_S = 1.0


class DidNotComeBack(Exception):
    """An actor that was killed is not ready again."""


@dataclass(frozen=True)
class WatchPlan:
    """How many requests and deaths, and by how much a process may grow over them."""

    n_requests: int
    n_restarts: int  # of all actors together
    at_once: int
    warm_requests: int
    allowed: Allowance
    seed: int = 0
    limit_s: float = math.inf  # after 60 % of it the requests end, and the deaths of all actors share the rest
    n_clients: int = 1  # processes
    settle_s: float = 60.0  # in which whatever is kept for a while must be gone
    most_bytes_per_1000: float = math.inf  # that a process may grow for each thousand requests


@dataclass
class Watched:
    """What was seen. `held`: of each process the first and the last holding of the phase of requests, and `bytes_per_1000` what
    it grew in it for each thousand requests. `kinds`: of requests that have ended, and `cut_by_deaths`, in the whole watch.
    `gpu_bytes`: in use on all GPUs of the machine, before and after."""

    n_requests: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    cut_by_deaths: dict[str, int] = field(default_factory=dict)
    growths: list[Growth] = field(default_factory=list)
    held: dict[str, tuple[HeldResources, HeldResources]] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    most_grown_bytes: dict[str, int] = field(default_factory=dict)  # by the actor that was killed
    requests_per_s: float = 0.0
    bytes_per_1000: dict[str, float] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    gpu_bytes: tuple[int, int] = (0, 0)


class LeakWatch:
    """One watch of one server. `folders`: everything that it writes."""

    def __init__(self, server: OwnServer, plan: WatchPlan, folders: tuple[Path, ...]) -> None:
        self._server, self._plan, self._folders = server, plan, folders
        self._target = WatchedServer(server.port, ())
        self.seen = Watched()

    async def run(self) -> Watched:
        """The whole watch. Raises: WrongAnswer, DidNotComeBack."""
        with clients(self._plan.n_clients, self._plan.at_once, self._plan.seed) as everybody:
            await self._watch(everybody)
        self.seen.n_requests, self.seen.kinds = everybody.n_done, dict(everybody.done)
        self.seen.cut_by_deaths = dict(everybody.failures)
        self.seen.files = dict(await self._settled_files())
        most = {"files": await self._most_files(), "bytes": _JOURNAL_BYTES}
        self.seen.growths += [Growth("all files", what, most[what], n) for what, n in self.seen.files.items() if n > most[what]]
        return self.seen

    async def _watch(self, everybody: Clients) -> None:
        began_s, plan = time.monotonic(), self._plan
        names = [child.name for child in (await self._status()).children]
        n_gateways = sum(role_of(name) == "gateway" for name in names)
        endpoints = tuple(zeromq_endpoint(self._server.run_dir, index) for index in range(n_gateways))
        self._target = WatchedServer(self._server.port, endpoints)
        targets = [*names, _SUPERVISOR]
        await self._kill_in_turn(everybody, targets, 1, math.inf)  # what a first death makes once is made now
        await everybody.run(self._target, ClientPhase(plan.warm_requests))
        await self._watch_requests(everybody, began_s + _REQUESTS_SHARE * plan.limit_s)
        each, before = -(-plan.n_restarts // len(targets)), await self._holdings()
        for n_left, target in () if not each else zip(range(len(targets), 0, -1), targets, strict=True):
            left_s = began_s + plan.limit_s - time.monotonic()
            await self._watch_deaths(everybody, target, each, time.monotonic() + left_s / n_left)
        self._note("all deaths", before, await self._settled(before))  # what one phase allows, all together must not need

    async def _watch_requests(self, everybody: Clients, until_s: float) -> None:
        before, gpu_before, n_before = await self._holdings(), gpu_bytes(), everybody.n_done
        samples = MemorySamples({f"{name} ({pid})": pid for name, pid in (await self._pids()).items()})
        began_s = time.monotonic()
        sampling = asyncio.create_task(_sample(samples, everybody))
        try:
            await everybody.run(self._target, ClientPhase(self._plan.n_requests, until_s))
        finally:
            sampling.cancel()
        self.seen.requests_per_s = (everybody.n_done - n_before) / (time.monotonic() - began_s)
        after = await self._settled(before)
        self.seen.held = {name: (before[name], after[name]) for name in before if name in after}
        self.seen.bytes_per_1000, self.seen.gpu_bytes = samples.slopes(), (gpu_before, gpu_bytes())
        self.seen.growths += samples.growths(self._plan.most_bytes_per_1000)
        self._note("requests", before, after)

    async def _watch_deaths(self, everybody: Clients, target: str, n_deaths: int, until_s: float) -> None:
        before = await self._holdings()
        self.seen.restarts[target] = await self._kill_in_turn(everybody, [target], n_deaths, until_s)
        self._note(target, before, await self._settled(before))

    def _note(self, phase: str, before: dict[str, HeldResources], after: dict[str, HeldResources]) -> None:
        both = before.keys() & after.keys()
        for name in both:
            self.seen.growths += growths(f"{name} after {phase}", before[name], after[name], self._plan.allowed)
        grown = [after[name].memory_bytes - before[name].memory_bytes for name in both]
        self.seen.most_grown_bytes[phase] = max(grown, default=0)

    async def _kill_in_turn(self, everybody: Clients, targets: list[str], n_deaths: int, until_s: float) -> int:
        """Kill each target so many times, one after the other, while requests run. Returns how often; at least once."""
        n_done = 0
        load = asyncio.create_task(everybody.run(self._target, ClientPhase(faults_expected=True)))
        try:
            while not everybody.have_begun and not load.done():
                await asyncio.sleep(_POLL_S)
            while n_done < n_deaths and (n_done == 0 or time.monotonic() < until_s):
                for target in targets:
                    await self._kill(target)
                n_done += 1
        finally:
            everybody.end()
            await load
        return n_done

    async def _kill(self, target: str) -> None:
        pid = (await self._pids())[target]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        end_s = time.monotonic() + _BACK_S
        while time.monotonic() < end_s:
            with suppress(NoServer):
                report = await self._status()
                pids = self._names(report)
                if report.state == TreeState.SERVING and pids.get(target, pid) != pid:
                    return
            await asyncio.sleep(_POLL_S)
        raise DidNotComeBack(f"{target}: expected it to be ready within {_BACK_S:g} s of its death")

    async def _status(self) -> StatusReport:
        return await asyncio.to_thread(ask_status, self._server.run_dir)

    async def _pids(self) -> dict[str, int]:
        """The processes by name, once the whole tree serves and has the spares that it keeps."""
        end_s = time.monotonic() + _BACK_S
        while True:
            with suppress(NoServer):
                report = await self._status()
                has_spares = not report.keeps_spares or all(child.has_spare for child in report.children)
                if (report.state == TreeState.SERVING and has_spares) or time.monotonic() > end_s:
                    return self._names(report)
            await asyncio.sleep(_POLL_S)

    def _names(self, report: StatusReport) -> dict[str, int]:
        supervisor = read_pid(self._server.run_dir)
        return {
            **{f"{child.name}": child.pid for child in report.children if child.pid},
            **({_SUPERVISOR: supervisor} if supervisor else {}),
            "parent": self._server.pid,
        }

    async def _holdings(self) -> dict[str, HeldResources]:
        """What each process holds, by name and process id: a process that has been replaced is another one."""
        found = {}
        for name, pid in (await self._pids()).items():
            with suppress(OSError):
                found[f"{name} ({pid})"] = holding_of(pid)
        n_processes = len(descendants_of(self._server.pid))
        found["processes of the server"] = HeldResources(0, n_processes, 0, 0, 0)
        return found

    async def _settled(self, before: dict[str, HeldResources]) -> dict[str, HeldResources]:
        """What each process holds once nothing is above what is allowed, or after the time for that."""
        end_s = time.monotonic() + self._plan.settle_s
        while True:
            after = await self._holdings()
            both = before.keys() & after.keys()
            is_calm = not any(growths(name, before[name], after[name], self._plan.allowed) for name in both)
            if is_calm or time.monotonic() > end_s:
                return after
            await asyncio.sleep(_POLL_S)

    async def _most_files(self) -> int:
        return _FILES + 2 * len(await self._pids())

    async def _settled_files(self) -> dict[str, int]:
        end_s = time.monotonic() + self._plan.settle_s
        while True:
            found = files_under(*self._folders)
            if (found["files"] <= await self._most_files() and found["bytes"] <= _JOURNAL_BYTES) or time.monotonic() > end_s:
                return found
            await asyncio.sleep(_POLL_S)


async def _sample(samples: MemorySamples, everybody: Clients) -> None:
    while True:
        samples.take(everybody.n_begun)
        await asyncio.sleep(_SAMPLE_EVERY_S)
