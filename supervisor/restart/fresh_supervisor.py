"""The next supervisor of a rolling restart: a new interpreter with the program that is on disk now, loaded before it is needed.

    python -m supervisor.restart.fresh_supervisor DESCRIPTOR      with its end of the link to the parent

The supervisor starts it, waits until it has imported all that a parent and a supervisor run, and lets the parent take it. So a
program that cannot be imported ends no supervisor, and nobody dies in a time in which there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from typing import NoReturn

from messages.outcomes import ExitCode
from supervisor.children.entrypoint import ignore_signals, leave
from supervisor.children.fork_server import SUPERVISOR_PROGRAM, launch_early_whole, set_command_line, wait_early
from supervisor.parent.execution import PARENT_PROGRAM, STOP_SIGNALS
from supervisor.parent.link import ParentLink, Successor
from supervisor.parent.unhurried import run_unhurried

_PROGRAM = "supervisor.restart.fresh_supervisor"
_LOADED = b"loaded"
_LOADED_S = 120.0  # for its imports, beside all that serves
_FORK_SERVER_S = 30.0  # of these for its fork server; without one actors get new interpreters


class FreshSupervisorFailed(Exception):
    """There is no next supervisor; the text says why."""


async def start_fresh_supervisor(deadline_s: float = _LOADED_S) -> Successor:
    """Start one and wait until it is loaded. It ends with its link.

    Raises: FreshSupervisorFailed if it ends before that or is not loaded within `deadline_s` seconds, OSError if the machine
    cannot start one.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.ExitStack() as stack:
        stack.callback(ours.close)
        with theirs:
            popen = _launch(theirs.fileno())
        stack.callback(popen.wait)
        stack.callback(popen.kill)
        ours.setblocking(False)
        try:
            async with asyncio.timeout(deadline_s):
                packet = await asyncio.get_running_loop().sock_recv(ours, len(_LOADED))
        except TimeoutError:
            raise FreshSupervisorFailed(f"expected it to be loaded within {deadline_s:g} s, got nothing") from None
        if packet != _LOADED:
            raise FreshSupervisorFailed("its new process ended before it was used; the log has the reason")
        stack.pop_all()
    return Successor(popen.pid, ours)


def _launch(end: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", _PROGRAM, str(end)]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(end,), start_new_session=True)


def main(argv: list[str]) -> NoReturn:
    """Load the program, wait until the parent needs a supervisor, and be it. `argv`: [descriptor]."""
    link = socket.socket(fileno=int(argv[0]))
    set_command_line([sys.executable, "-m", PARENT_PROGRAM])  # as that of other supervisors
    ignore_signals("supervisor")
    run_unhurried(_import_program)
    launch_early_whole()
    wait_early(_FORK_SERVER_S)
    with contextlib.suppress(OSError):  # the other end is closed: the next line sees it
        link.send(_LOADED)
    if not link.recv(1, socket.MSG_PEEK):
        os._exit(ExitCode.DONE)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    program = importlib.import_module(SUPERVISOR_PROGRAM)
    leave(program.resume(ParentLink(link, os.getppid())))


def _import_program() -> None:
    importlib.import_module(SUPERVISOR_PROGRAM)
    importlib.import_module(PARENT_PROGRAM)


if __name__ == "__main__":
    main(sys.argv[1:])
