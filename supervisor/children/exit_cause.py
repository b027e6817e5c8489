"""The cause of death of an incarnation, as far as the supervisor knows it. Schedulers use it to find poisonous sequences.

The cause comes from the exit status, from the supervisor's own kills, and from the kernel's count of processes that it killed
for want of memory. Computations crash, fault, hang and use up memory; they do not send SIGKILL and do not stop themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from messages.lifecycle.lifecycle import Cause
from messages.outcomes import ExitCode
from supervisor.children.child_record import ChildRecord
from supervisor.children.process import UNKNOWN_EXIT, ExitStatus

_OF_THE_MACHINE = Path("/proc/vmstat")
_BEGIN_S = 0.25  # all ranks begin a step within this time
_WINDOW_S = 3.0  # between a kill by the kernel and the proof of that death
_OF_COMPUTATIONS = {f"SIG{name}" for name in ("SEGV", "BUS", "FPE", "ILL", "ABRT", "SYS", "TRAP", "XCPU", "XFSZ")}


class OutOfMemoryKills:
    """The kernel's count of processes that it killed for want of memory, in the control group of this server.

    Other containers on the machine do not count. A rise explains the next SIGKILL from outside, if that is noticed within
    `window_s` seconds. Kernels without control groups count for the whole machine.
    """

    def __init__(
        self, counters: Path | None = None, clock: Callable[[], float] = time.monotonic, window_s: float = _WINDOW_S
    ) -> None:
        self._counters = counters or own_counters()
        self._clock, self._window_s = clock, window_s
        self._seen = self._count(0)
        self._risen_s: float | None = None  # when the last rise was seen that explains no death yet

    def poll(self) -> None:
        """Read the count. Call it about twice a second, so that the time of a rise is known."""
        before, self._seen = self._seen, self._count(self._seen)
        if self._seen > before:
            self._risen_s = self._clock()

    def take_rise(self) -> bool:
        """True if the count has risen within the last seconds. Each rise is returned once, because it explains one death. False
        where the kernel keeps no such count."""
        self.poll()
        risen_s, self._risen_s = self._risen_s, None
        return risen_s is not None and self._clock() - risen_s <= self._window_s

    def _count(self, unread: int) -> int:
        """The present count; `unread` when it cannot be read now."""
        try:
            lines = self._counters.read_text().splitlines()
        except OSError:
            return unread
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def own_counters(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Path:
    """The file with the count of this process's control group (version 2 or 1); that of the whole machine where there is none.

    `membership`: lines "number:controllers:path". `root`: where the control groups are mounted.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return _OF_THE_MACHINE
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if not controllers:
            found = [root / inside / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            found = [root / "memory" / inside / "memory.oom_control", root / "memory" / "memory.oom_control"]
        else:
            continue
        for counters in found:  # a container sees its own group as the root, whatever the path says
            if counters.exists():
                return counters
    return _OF_THE_MACHINE


def cause_of(exit_status: ExitStatus, killed_for: Cause | None, take_memory_kill: Callable[[], bool]) -> Cause:
    """Why a process with this exit status is dead. `killed_for`: why its supervisor sent it SIGKILL, None when it did not.
    `take_memory_kill` is called only when the SIGKILL came from elsewhere."""
    if exit_status.signal_name == "SIGKILL":
        return killed_for or ("out_of_memory" if take_memory_kill() else "killed")
    if exit_status.signal_name:
        return "crashed" if exit_status.signal_name in _OF_COMPUTATIONS else "killed"
    if exit_status == UNKNOWN_EXIT:
        return killed_for or "killed"  # no computation is blamed without evidence
    return "ended" if exit_status.code in (ExitCode.DONE, ExitCode.UNUSABLE) else "faulted"


@dataclass(frozen=True)
class Awaited:
    """The child that must be killed because another one, or it itself, is silent or stuck. `why`: goes after that reason."""

    record: ChildRecord
    cause: Cause
    why: str = ""


def awaited_by(late: ChildRecord, members: Sequence[ChildRecord]) -> Awaited:
    """For whom a child that is silent or stuck may wait. `members`: of its group.

    First one that is stopped from outside (SIGSTOP, a debugger). Then one that is well and has not begun the step in which the
    others wait for it: its plan has not come yet. No computation is blamed for either; without them `late` hangs.
    """
    for one in members:
        if one.process is not None and one.process.is_suspended():
            return Awaited(one, "killed", ", stopped from outside")
    for one in members:
        if _has_not_begun(one, late):
            return Awaited(one, "killed", f"; {one.name} has not begun it")
    return Awaited(late, "hung")


def _has_not_begun(one: ChildRecord, late: ChildRecord) -> bool:
    """True if `one` has been idle since `late` began its step. One that froze as it began it has sent nothing since."""
    if one.last is None or late.last is None or not late.last.busy_s:
        return False
    began_s = late.heard_s - late.last.busy_s
    return not one.last.busy_s and one.last.steps <= late.last.steps and one.heard_s - began_s > _BEGIN_S
