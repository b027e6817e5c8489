"""The cause of death of an incarnation, as far as the supervisor knows it. Schedulers use it to find poisonous sequences.

The cause comes from the exit status, from the supervisor's own kills, and from the kernel's count of processes that it killed
for want of memory. Computations crash, fault, hang and use up memory; they do not send SIGKILL and do not stop themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from messages.child import EXIT_FAULT
from messages.lifecycle import Cause
from supervisor.children.process import ChildProcess, ExitStatus

_COUNTERS = Path("/proc/vmstat")
_OF_COMPUTATIONS = {f"SIG{name}" for name in ("SEGV", "BUS", "FPE", "ILL", "ABRT", "SYS", "TRAP", "XCPU", "XFSZ")}


class OutOfMemoryKills:
    """The kernel's count of processes that it killed for want of memory.

    The count is that of the whole machine. If the victim was some other process, the next kill from outside is wrongly
    attributed to the kernel. That is one wrong cause, and a verdict on a sequence needs several deaths.
    """

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count(0)

    def has_risen(self) -> bool:
        """True if the count has risen since the last call. False where the kernel keeps no such count."""
        before, self._seen = self._seen, self._count(self._seen)
        return self._seen > before

    def _count(self, unread: int) -> int:
        """The present count; `unread` when it cannot be read now."""
        try:
            lines = self._counters.read_text().splitlines()
        except OSError:
            return unread
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def cause_of(exit_status: ExitStatus, killed_for: Cause | None, ran_out_of_memory: Callable[[], bool]) -> Cause:
    """Why a process with this exit status is dead. `killed_for`: why its supervisor sent it SIGKILL, None when it did not.
    `ran_out_of_memory` is called only when the SIGKILL came from elsewhere."""
    if exit_status.signal_name == "SIGKILL":
        return killed_for or ("out_of_memory" if ran_out_of_memory() else "killed")
    if exit_status.signal_name:
        return "crashed" if exit_status.signal_name in _OF_COMPUTATIONS else "killed"
    return "faulted" if exit_status.code == EXIT_FAULT else "ended"


def cause_of_silence(process: ChildProcess | None) -> Cause:
    """Why a living process sends nothing: "killed" if it was stopped from outside (SIGSTOP, a debugger), else "hung"."""
    return "killed" if process is not None and process.is_suspended() else "hung"
