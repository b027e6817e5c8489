"""The processes of a server that a campaign harms: found by role, and waited for after their deaths."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from messages.ids import memory_owner, role_of
from messages.lifecycle.tree import ChildStatus, StatusReport
from supervisor.children.fork_server import find_fork_server
from supervisor.directories.run_dir_files import read_pid
from supervisor.operator.calls import NoServer, ask_status

SUPERVISOR, PARENT, STANDBY, FORK_SERVER = "supervisor", "parent", "standby", "fork_server"
BACK_S = 90.0  # longest wait for a process that was killed
_READY = ("ready", "draining", "drained")
_POLL_S = 0.005


@dataclass(frozen=True)
class Victim:
    """A process that may be harmed."""

    name: str
    pid: int
    is_ready: bool
    is_standby: bool = False

    @property
    def role(self) -> str:
        """The role of its actor, "supervisor", "parent", "fork_server" or, for a worker that is ready and waits to take over,
        "standby"."""
        if self.is_standby:
            return STANDBY
        return self.name if self.name in (SUPERVISOR, PARENT, FORK_SERVER) else role_of(self.name)

    @staticmethod
    def of(child: ChildStatus) -> Victim:
        """A child of the supervisor."""
        return Victim(child.name, int(child.pid), child.state in _READY, is_standby=child.phase == STANDBY)


class Processes:
    """The processes of the server in this run directory. Methods that wait block the thread. `report`: its first status."""

    def __init__(self, run_dir: Path, report: StatusReport, chance: random.Random) -> None:
        self._run_dir, self._chance = run_dir, chance
        self._last_report, self._is_answered = report, True

    @property
    def roles(self) -> list[str]:
        """All roles of this server, in alphabetical order."""
        victims = [Victim.of(child) for child in self._last_report.children]
        return sorted({victim.role for victim in victims} | {SUPERVISOR, PARENT, FORK_SERVER})

    def pick(self, role: str, longest_s: float = BACK_S) -> Victim:
        """A ready process of this role. Raises: TimeoutError after `longest_s`."""
        return self._look(lambda victim: victim.role == role and victim.is_ready, longest_s)

    def next_ready(self, before: Victim) -> Victim:
        """The ready process that has taken the place of a dead one: its next incarnation, or the standby that was promoted.
        Raises: TimeoutError."""

        def is_it(victim: Victim) -> bool:
            is_same = (victim.role, memory_owner(victim.name)) == (before.role, memory_owner(before.name))
            return is_same and victim.is_ready and victim.pid != before.pid

        return self._look(is_it)

    def next_loading(self, before: Victim) -> Victim:
        """The next incarnation of a dead process as soon as it exists, usually before it is ready. Raises: TimeoutError."""
        if before.name == SUPERVISOR:
            return self._next_supervisor(before.pid)
        if before.name == FORK_SERVER:  # it imports: nothing says when it is ready
            return replace(self.next_ready(before), is_ready=False)
        return self._look(lambda victim: victim.name == before.name and victim.pid != before.pid)

    def partner(self, worker: Victim) -> Victim | None:
        """The same rank in the other seat, ready or not; None if there is no such process now."""
        owner = memory_owner(worker.name)
        others = [Victim.of(child) for child in self._report().children if child.name != worker.name]
        return next((other for other in others if other.pid and memory_owner(other.name) == owner), None)

    def next_parent(self) -> Victim:
        """The supervisor, which becomes the parent when the parent is dead."""
        supervisor = self.pick(SUPERVISOR)
        return Victim(PARENT, supervisor.pid, is_ready=False)

    def custodians_of_gateways(self) -> dict[tuple[str, int], float]:
        """How many custodians each incarnation of a gateway has connected to, as it has told last: none, if it is dead."""
        gateways = [child for child in self._report().children if role_of(child.name) == "gateway"]
        return {
            (child.name, int(child.incarnation)): child.statistics.get("custodians", 0.0) if _is_alive(int(child.pid)) else 0.0
            for child in gateways
        }

    def wait_held(self, had: dict[tuple[str, int], float], longest_s: float = BACK_S) -> None:
        """Wait until each gateway has given its connections to another custodian than the ones it `had`, at most `longest_s`.

        A connection ends with its gateway while no custodian has it. A custodian that was only paused still has them.
        """
        until_s = time.monotonic() + longest_s
        while time.monotonic() < until_s:
            if all(n > had.get(gateway, 0.0) for gateway, n in self.custodians_of_gateways().items()):
                return
            time.sleep(_POLL_S)

    def _next_supervisor(self, pid_before: int) -> Victim:
        """The supervisor after the one with this process id, as soon as its own id is written. It may not answer yet."""
        until_s = time.monotonic() + BACK_S
        while time.monotonic() < until_s:
            pid = read_pid(self._run_dir)
            if pid and pid != pid_before:
                return Victim(SUPERVISOR, pid, is_ready=False)
            time.sleep(_POLL_S)
        raise TimeoutError(f"no supervisor came within {BACK_S:g} s")

    def _look(self, is_it: Callable[[Victim], bool], longest_s: float = BACK_S) -> Victim:
        """A process for which `is_it` is true, as soon as there is one. Raises: TimeoutError after `longest_s`."""
        until_s = time.monotonic() + longest_s
        while True:
            victims = [Victim.of(child) for child in self._report().children]
            if self._is_answered:  # a supervisor is there, which can take the place of the parent
                victims.append(Victim(PARENT, self._last_report.parent_pid, is_ready=True))
            supervisor_pid = read_pid(self._run_dir)
            if supervisor_pid:
                victims.append(Victim(SUPERVISOR, supervisor_pid, is_ready=True))
                if is_it(Victim(FORK_SERVER, 0, is_ready=True)):
                    victims.append(Victim(FORK_SERVER, find_fork_server(supervisor_pid), is_ready=True))
            if found := [victim for victim in victims if victim.pid and is_it(victim)]:
                return self._chance.choice(found)
            if time.monotonic() >= until_s:
                raise TimeoutError(f"no process came within {longest_s:g} s")
            time.sleep(_POLL_S)

    def _report(self) -> StatusReport:
        """The tree's status; while the supervisor is away, the last one."""
        self._is_answered = False
        with contextlib.suppress(NoServer):
            self._last_report = ask_status(self._run_dir)
            self._is_answered = True
        return self._last_report


def _is_alive(pid: int) -> bool:
    """False also for a process that was killed a moment ago, of which the status still tells what it has said last."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
