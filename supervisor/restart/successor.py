"""The next supervisor where the present one is about to be the parent: a fork of the fork server, which has the program.

    parent (dead)   supervisor ── fork server           parent (was the supervisor) ── next supervisor ── fork server
                        └──────── next supervisor          that of before ends with the event loop

It waits until its parent gives it what a supervisor needs. It forks a fork server of its own at once, so actors that die next
are forked, too.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
from typing import NoReturn

from messages.outcomes import ExitCode
from supervisor.children.entrypoint import ignore_signals, leave
from supervisor.children.fork_link import ForkedChild
from supervisor.children.fork_server import SUPERVISOR_PROGRAM, Launched, keep_early, serve_forked
from supervisor.parent.execution import STOP_SIGNALS
from supervisor.parent.link import ParentLink


def become_supervisor(end: int) -> NoReturn:
    """Be the next supervisor in a process that was forked for it. `end`: the descriptor of its end of the link. It ends if the
    parent ends before it is needed."""
    link = socket.socket(fileno=end)
    with contextlib.suppress(OSError):  # the machine has no room now: the supervisor starts one later
        _fork_fork_server(link)
    ignore_signals("supervisor")  # as the fork server does; this gives it a name
    program = importlib.import_module(SUPERVISOR_PROGRAM)
    if not link.recv(1, socket.MSG_PEEK):
        os._exit(ExitCode.DONE)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    leave(program.resume(ParentLink(link, os.getppid())))


def _fork_fork_server(link: socket.socket) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        if pid := os.fork():
            keep_early(Launched(ForkedChild(pid), ours, has_program=True))
            return
        ours.close()
        link.close()
        serve_forked(theirs)
