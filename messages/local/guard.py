"""Runs a command for as long as the process lives that has started this program: `python guard.py DIR COMMAND...`.

Standard input is a pipe from that process. When it ends, or the process does, also by kill -9 and while a child that it has
forked keeps the pipe open, the command gets SIGTERM, later SIGINT twice, which `supervisor start` takes as an order to kill all
processes, at last SIGKILL. If this program dies first, the kernel sends the command SIGTERM. DIR, the private directory of the
command, is removed at the end. The exit status is the command's. Only the standard library is imported, so that the start costs
milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_STOP_S, _FORCE_S, _KILL_S = 10.0, 20.0, 5.0  # seconds until the next, harder step
_PR_SET_PDEATHSIG = 1


def main(folder: str, command: list[str]) -> int:
    """Run `command` until it, standard input or the parent of this process has ended; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # who ends this program closes its standard input
    libc, pid, parent = ctypes.CDLL(None, use_errno=True), os.getpid(), _pidfds(os.getppid())

    def prepare() -> None:  # safe after the fork: this program has one thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != pid:  # this program died before the line above
            raise RuntimeError("the guard has died")  # ends the child before it is the command

    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare)
    ended = os.pidfd_open(child.pid)
    readable, _, _ = select.select([0, ended, *parent], [], [])
    is_proven = ended in readable or _end(child, ended)
    status = child.wait()
    if is_proven:  # after SIGKILL processes of the server may live on, and use what is in there
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status


def _pidfds(pid: int) -> list[int]:
    """A descriptor that is readable when this process has ended; none if it has ended already."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def _end(child: subprocess.Popen[bytes], ended: int) -> bool:
    """End the command. Returns False if it had to be killed by force, which it cannot pass on to its own children."""
    for signals, wait_s in (((signal.SIGTERM,), _STOP_S), ((signal.SIGINT, signal.SIGINT), _FORCE_S)):
        for number in signals:
            child.send_signal(number)
            time.sleep(0.05)  # two equal signals at once would be one
        if select.select([ended], [], [], wait_s)[0]:
            return True
    child.kill()
    select.select([ended], [], [], _KILL_S)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
