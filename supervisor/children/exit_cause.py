"""How a life ended, as its supervisor knows it; schedulers draw conclusions from that.

It comes from the exit status, from the supervisor's own kills, and from the kernel's count of processes that it killed for
want of memory. Computations crash, fault, hang and use up memory; they do not send SIGKILL, and they do not stop themselves.
"""

from __future__ import annotations

from pathlib import Path

from messages.child import EXIT_FAULT
from messages.lifecycle import Cause
from supervisor.children.process import ExitStatus

_COUNTERS = Path("/proc/vmstat")
_OF_COMPUTATIONS = {f"SIG{name}" for name in ("SEGV", "BUS", "FPE", "ILL", "ABRT", "SYS", "TRAP", "XCPU", "XFSZ")}


class OutOfMemory:
    """Has the kernel killed for want of memory since it was asked last?

    Its count is of the whole machine. If the victim was another process, one kill from elsewhere is taken for the kernel's:
    one death more to explain, where a verdict needs several.
    """

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count(0)

    def has_struck(self) -> bool:
        """See the class. False where the kernel keeps no such count."""
        before, self._seen = self._seen, self._count(self._seen)
        return self._seen > before

    def _count(self, unread: int) -> int:
        """As the kernel says; `unread` when it cannot be asked now."""
        try:
            lines = self._counters.read_text().splitlines()
        except OSError:
            return unread
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def cause_of(exit_status: ExitStatus, killed_for: Cause | None, memory: OutOfMemory) -> Cause:
    """Why a process that ended so is dead; `killed_for`: why its supervisor has sent it SIGKILL, None when it has not."""
    if exit_status.signal_name == "SIGKILL":
        return killed_for or ("out_of_memory" if memory.has_struck() else "killed")
    if exit_status.signal_name:
        return "crashed" if exit_status.signal_name in _OF_COMPUTATIONS else "killed"
    return "faulted" if exit_status.code == EXIT_FAULT else "ended"


def cause_of_silence(pid: int) -> Cause:
    """Why a living process does nothing: somebody has stopped it (SIGSTOP, a debugger), or it hangs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return "hung"
    return "killed" if state in (b"T", b"t") else "hung"
