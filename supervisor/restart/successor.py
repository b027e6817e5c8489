"""The next supervisor where the present one is about to be the parent: a fork of the fork server, which has the program.

    parent (dead)   supervisor ── fork server           parent (was the supervisor) ── next supervisor ── fork server
                        └──────── next supervisor          that of before ends with the event loop

It waits until its parent gives it what a supervisor needs. It forks a fork server of its own at once, so actors that die next
are forked, too.

Where a supervisor begins and no fork server can make the next one yet, the next one is a fork of itself (`leave_next`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
from typing import NoReturn

from messages.outcomes import ExitCode
from supervisor.children.entrypoint import ignore_signals, leave
from supervisor.children.fork_link import ForkedChild
from supervisor.children.fork_server import (
    SUPERVISOR_PROGRAM,
    Launched,
    drop_early,
    has_early_program,
    keep_early,
    launch_early_whole,
    serve_forked,
)
from supervisor.children.kept_spares import has_kept_spares
from supervisor.parent.execution import STOP_SIGNALS
from supervisor.parent.link import ParentLink, Successor

_FIRST_INHERITED, _MOST_DESCRIPTORS = 3, 2**20
_UNHURRIED_S = 2.0  # in which a fork server's imports would take a core from the supervisor that begins


def become_supervisor(end: int) -> NoReturn:
    """Be the next supervisor in a process that was forked for it. `end`: the descriptor of its end of the link. It ends if the
    parent ends before it is needed."""
    link = socket.socket(fileno=end)
    with contextlib.suppress(OSError):  # the machine has no room now: the supervisor starts one later
        _fork_fork_server(link)
    ignore_signals("supervisor")  # as the fork server does; this gives it a name
    _wait_and_be(link)


def leave_next(link: ParentLink) -> None:
    """In a supervisor that begins, before it has opened anything: let the parent have the next one, a fork of this process,
    where the fork server could only make one after its imports. They take seconds on a busy machine, in which another kill
    would cost the start of an interpreter. It takes some 10 ms. None is made where children have no spares."""
    if not (link.lacks_spare and has_kept_spares(link)) or has_early_program():
        return
    with contextlib.suppress(OSError):  # the machine has no room now: it is asked for later
        if len(os.listdir("/proc/self/task")) > 1:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            if pid := os.fork():
                link.give_spare(Successor(pid, ours))
            else:
                _be_next(theirs)


def _be_next(link: socket.socket) -> NoReturn:
    """In the fork: close all that belongs to the supervisor, which holds locks, and wait to be needed."""
    try:
        os.setsid()
        drop_early()
        os.closerange(_FIRST_INHERITED, link.fileno())
        os.closerange(link.fileno() + 1, _MOST_DESCRIPTORS)
        ignore_signals("supervisor")
        if not select.select([link], [], [], _UNHURRIED_S)[0]:
            launch_early_whole()
        _wait_and_be(link)
    except BaseException as error:  # nothing of that supervisor may go on in this process
        os.write(2, f"supervisor: the next one failed while it waited: {error!r}\n".encode())
    os._exit(ExitCode.FAULT)


def _wait_and_be(link: socket.socket) -> NoReturn:
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
