"""Spare processes: an interpreter that has imported what a child needs and waits for its spawn spec on standard input.

Most of a restart's time goes into starting Python and importing: half a second for an actor, several for a worker with torch.
A spare has done that in advance. It holds no state, no socket and no device memory, and becomes the next incarnation of its
child in milliseconds. There is at most one for each child; it is made while the tree serves, never while it starts or ends.

A spare that waits runs no code, so it sends no heartbeat: `look` asks the kernel instead whether it is stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from supervisor.children.process import ChildProcess, ExitStatus, OnExit
from supervisor.children.spawner import ignore_exit
from supervisor.policy.child_spec import ChildSpec

_FIRST_AFTER_S = 0.5  # pause after the tree became ready, so that first requests get the cores
_NEXT_AFTER_S = 0.5  # pause between two spares, because imports take a core
_REFUSED_S = 5.0  # pause after the machine refused a process
_WARM_POLL_S = 0.01
_LOADED_S = 120.0  # for the warm-ups of a spare, which have the lowest priority
_MAX_DEATHS = 3  # of unused spares of one child; after that it gets no more

Spawn = Callable[[ChildSpec, OnExit, bool], ChildProcess]


class Spares:
    """At most one spare for each child. `spawn(spec, on_exit, is_new)` starts one; `is_new`: with the program that is on disk
    now. `is_wanted`: False: none are made."""

    def __init__(self, spawn: Spawn, is_wanted: bool) -> None:
        self._spawn, self._is_wanted = spawn, is_wanted
        self._process_by_name: dict[str, ChildProcess] = {}
        self._deaths_by_name: dict[str, int] = {}
        self._used = set[str]()  # children whose spare was asked for since `renew` looked last
        self._specs: list[ChildSpec] = []  # of the children that shall have one now
        self._stopped = set[int]()  # process ids that were stopped from outside at the last look
        self._loading_s: dict[int, float] = {}  # since when, by process id
        self._timer: asyncio.TimerHandle | None = None
        self._died_one = asyncio.Event()
        self._renewed = set[str]()  # children whose spares `renew` makes just now

    @property
    def is_wanted(self) -> bool:
        """True until the server ends, where the settings ask for spares."""
        return self._is_wanted

    @property
    def names(self) -> set[str]:
        """Children that have a spare now which has done its warm-ups."""
        return {name for name, process in self._process_by_name.items() if process.is_warm}

    @property
    def pids(self) -> set[int]:
        """The process ids of all spares."""
        return {process.pid for process in self._process_by_name.values()}

    def pop(self, name: str, only_warm: bool = False) -> ChildProcess | None:
        """The spare of this child, which the caller owns from now on; None when there is none that runs. `only_warm`: one that
        still imports stays a spare, because the caller has something quicker."""
        if only_warm and name in self._process_by_name and not self._process_by_name[name].is_warm:
            return None
        process = self._process_by_name.pop(name, None)
        if process is not None:
            self._used.add(name)
        if process is None or not process.is_suspended():
            return process
        _discard(name, process, "stopped from outside")
        return None

    def keep(self, name: str, process: ChildProcess) -> None:
        """Take over a process that waits for its spawn spec and cannot become its child yet."""
        process.on_exit = partial(self._died, name)
        self._process_by_name[name] = process

    def fill(self, specs: Iterable[ChildSpec]) -> None:
        """Make the missing spares of these children, one after the other."""
        self.cancel()
        self._specs = list(specs)
        todo = [spec for spec in self._specs if spec.name not in self._process_by_name and self._may_have(spec.name)]
        if self._is_wanted and todo:
            self._timer = asyncio.get_running_loop().call_later(_FIRST_AFTER_S, self._make, todo)

    def look(self, now_s: float) -> None:
        """Replace spares that are of no use: stopped from outside at two looks in a row, or not loaded in time. Make those that
        are missing. Called about twice a second; a look takes about 15 µs for each spare."""
        spares = list(self._process_by_name.items())
        stopped = {process.pid for _, process in spares if process.is_suspended()}
        loading = [process.pid for _, process in spares if not process.is_warm and process.pid not in stopped]
        self._loading_s = {pid: self._loading_s.get(pid, now_s) for pid in loading}
        for name, process in spares:
            if process.pid in stopped & self._stopped:
                _discard(name, self._process_by_name.pop(name), "stopped from outside")
            elif now_s - self._loading_s.get(process.pid, now_s) > _LOADED_S:
                self._count_death(name)
                _discard(name, self._process_by_name.pop(name), f"not loaded within {_LOADED_S:g} s")
        self._stopped = stopped
        if self._timer is None:
            self.fill(self._specs)

    async def renew(self, specs: Iterable[ChildSpec], deadline_s: float) -> str:
        """Replace the spares of these children by new ones, which import the program as it is on disk now, and wait until they
        have done their warm-ups. Returns "", or why that is not possible; then these children have no spare.

        A spare that becomes the next incarnation of a child that dies meanwhile, with the settings of now, is made once more.
        """
        by_name = {spec.name: spec for spec in specs}
        self._renewed = set(by_name)
        try:
            return await self._renew(by_name, time.monotonic() + deadline_s, deadline_s)
        finally:
            self._renewed = set()

    async def _renew(self, by_name: dict[str, ChildSpec], end_s: float, deadline_s: float) -> str:
        used = list(by_name)
        while used or not all(self._process_by_name[name].is_warm for name in by_name):
            for name in used:
                if (old := self._process_by_name.pop(name, None)) is not None:
                    old.on_exit = ignore_exit
                    old.kill()
                try:
                    self.keep(name, self._spawn(by_name[name], ignore_exit, True))
                except OSError as error:
                    return f"{name}: the machine cannot start a process: {error}"
            self._used.clear()
            await asyncio.sleep(_WARM_POLL_S)
            used = [name for name in by_name if name in self._used and name not in self._process_by_name]
            if died := [name for name in by_name if name not in self._process_by_name and name not in used]:
                return f"{died[0]}: its new process ended before it was used; the log has the reason"
            if time.monotonic() > end_s:
                return f"{next(iter(by_name))}: expected its new process to be loaded within {deadline_s:g} s, got none"
        return ""

    def cancel(self) -> None:
        """Make no more spares until the next `fill`."""
        self._specs = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Kill all spares and make no more."""
        self.cancel()
        self._is_wanted = False
        for process in self._process_by_name.values():
            process.kill()

    async def wait_gone(self, deadline_s: float) -> bool:
        """After `close`: wait for their deaths. Returns False when one is still alive after `deadline_s` seconds."""
        try:
            async with asyncio.timeout(deadline_s):
                while self._process_by_name:
                    self._died_one.clear()
                    await self._died_one.wait()
        except TimeoutError:
            return False
        return True

    def _may_have(self, name: str) -> bool:
        return self._deaths_by_name.get(name, 0) < _MAX_DEATHS

    def _make(self, todo: list[ChildSpec]) -> None:
        spec, *later = todo
        if spec.name not in self._process_by_name and spec.name not in self._renewed:
            try:
                self._process_by_name[spec.name] = self._spawn(spec, partial(self._died, spec.name), False)
            except OSError as error:
                structlog.get_logger().warning("spare not started, will try again", child=spec.name, reason=str(error))
                self._timer = asyncio.get_running_loop().call_later(_REFUSED_S, self._make, todo)
                return
        self._timer = asyncio.get_running_loop().call_later(_NEXT_AFTER_S, self._make, later) if later else None

    def _died(self, name: str, exit_status: ExitStatus) -> None:
        """An unused spare died. The next look makes another, up to a bound."""
        self._process_by_name.pop(name, None)
        self._count_death(name)
        self._died_one.set()
        if self._is_wanted:
            structlog.get_logger().warning("spare died", child=name, how=str(exit_status))

    def _count_death(self, name: str) -> None:
        self._deaths_by_name[name] = self._deaths_by_name.get(name, 0) + 1


def _discard(name: str, process: ChildProcess, why: str) -> None:
    structlog.get_logger().warning("spare not used", child=name, reason=why)
    process.on_exit = ignore_exit
    process.kill()
