"""The fork server: a process that has imported what actors need and becomes them by forks, in milliseconds.

    python -m supervisor.children.fork_server DESCRIPTOR ...     with its end of a pair of sockets

A new interpreter takes half a second of a core until its actor runs, and 60 MB; ten actors start together, and all of them
import the same. This process imports it once, and each actor shares that memory with it. Ranks and embedders are not made here:
libraries of devices do not survive a fork.

    supervisor ── fork server        asked for an actor, it forks twice and the one between ends at once, so
        │                            the actor becomes a child of the supervisor, as if that had started it
        └──────── actor

It holds no state, has one thread and no event loop, and ends with the supervisor that has started it. The other end is
`fork_link.py`. `launch_early` is for that end, too: it runs before the supervisor has imported its program, so little is
imported here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec

from messages.ids import SUPERVISOR, role_of
from messages.outcomes import ExitCode
from supervisor.children.entrypoint import RUN_BY_ROLE, become_child, do_warm_up, ignore_signals, leave, warm_ups
from supervisor.parent.execution import PARENT_PROGRAM
from supervisor.parent.kernel import children_of, die_with
from supervisor.parent.unhurried import run_unhurried

if TYPE_CHECKING:
    from supervisor.children.process import Reaper

FORKED_ROLES = frozenset(RUN_BY_ROLE) - {"worker", "embedder"}
PACKET_BYTES = 65_536
MAX_DESCRIPTORS = 64
ENTRYPOINT = "supervisor.children.entrypoint"
SUCCESSOR, SUPERVISOR_PROGRAM = "supervisor.restart.successor", "supervisor.start"
_PROGRAM = "supervisor.children.fork_server"
_ROOM = "." * 64  # for the command lines of actors
_ALONE_S, _ALONE_POLL_S = 1.0, 0.001
_ARGUMENTS_AT = 45  # in /proc/self/stat, counted from the field after the name; `man proc` calls it arg_start (48)


class ForkRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the supervisor asks for. With a name: this actor, which does these warm-ups first; its standard input and its
    descriptors come with the packet. With the supervisor's name: the next supervisor; the descriptor is its end of its link.
    Without a name: the warm-ups in the fork server, so that all whom it forks later have them."""

    name: str = ""
    warm_ups: tuple[str, ...] = ()


class ForkAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """To a request for an actor: its process id and the numbers of its descriptors, or why there is none. To warm-ups, and to
    nothing after the first imports: that they are done."""

    pid: int = 0
    descriptors: tuple[int, ...] = ()
    error: str = ""
    is_warm: bool = False


@dataclass(frozen=True)
class Launched:
    """A fork server that was started, and this process's end of its pair of sockets."""

    popen: Reaper
    control: socket.socket
    has_program: bool = False  # it imports that of a supervisor too


_early: list[Launched] = []  # that `launch_early` has started and nobody has taken


def launch(*modules: str) -> Launched:
    """Start a fork server, which begins to import what actors need, and then these modules. Raises: OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            argv = [sys.executable, "-m", _PROGRAM, str(theirs.fileno()), *modules, _ROOM]
            popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True)
        except BaseException:
            ours.close()
            raise
    return Launched(popen, ours, SUPERVISOR_PROGRAM in modules)


def launch_early() -> None:
    """Start a fork server for the supervisor that this process will be; it imports beside this process. If the machine cannot
    start one now, `take_early` finds none."""
    with contextlib.suppress(OSError):
        _early.append(launch())


def launch_early_whole() -> None:
    """The same with all that a supervisor needs, where nobody waits for it: it can fork the next one at once."""
    with contextlib.suppress(OSError):
        _early.append(launch(SUCCESSOR, SUPERVISOR_PROGRAM))


def wait_early(deadline_s: float) -> None:
    """Wait until what `launch_early` has started can fork, or has ended."""
    select.select([launched.control for launched in _early], [], [], deadline_s if _early else 0.0)


def keep_early(launched: Launched) -> None:
    """Let `take_early` find this one."""
    _early.append(launched)


def has_early_program() -> bool:
    """True if what `launch_early` has started in this process can make a supervisor at once."""
    return any(one.has_program and select.select([one.control], [], [], 0.0)[0] for one in _early)


def drop_early() -> None:
    """In a fork of this process: close the links to what `launch_early` has started, which stays with the process before."""
    for launched in _early:
        launched.control.close()
    _early.clear()


def take_early() -> Launched | None:
    """What `launch_early` has started in this process."""
    return _early.pop() if _early else None


def main(argv: list[str]) -> int:
    """Serve until the supervisor closes its end; returns the exit status. `argv`: [descriptor, further modules ..., room]."""
    control = socket.socket(fileno=int(argv[0]))
    ignore_signals("fork server")
    with contextlib.suppress(OSError):  # a sandbox may not let it
        die_with(os.getppid())  # also when it is stopped and cannot see that the other end is closed; actors do not inherit it
    modules = [
        "supervisor.children.incarnation",
        *(module for role in sorted(FORKED_ROLES) for module in warm_ups(f"{role}/0")),
        *argv[1:-1],
    ]
    return _serve(control) if _load(control, modules) else ExitCode.DONE


def serve_forked(control: socket.socket) -> NoReturn:
    """Be the fork server of the process that has just forked this one, itself a fork of a fork server: all is imported."""
    with contextlib.suppress(OSError):
        die_with(os.getppid())
    set_command_line([sys.executable, "-m", _PROGRAM])
    os._exit(_serve(control) if _load(control, []) else ExitCode.DONE)


def _serve(control: socket.socket) -> int:
    while (packet := _received(control)) is not None:
        request, fds = packet
        if request.name:
            _send(control, _fork(control, request, fds))
            for fd in fds:
                os.close(fd)
        elif not _load(control, list(request.warm_ups)):
            break
    return ExitCode.DONE


def _load(control: socket.socket, warm_ups_left: list[str]) -> bool:
    """Do these warm-ups, and say that they are done. One that fails is left to the actor that needs it, which says why.
    Returns False if the supervisor has ended meanwhile."""
    for warm_up in warm_ups_left:
        if select.select([control], [], [], 0.0)[0] and not control.recv(1, socket.MSG_PEEK):
            return False
        with contextlib.suppress(Exception):
            run_unhurried(partial(do_warm_up, warm_up))
    _wait_alone()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it walks through
    return _send(control, ForkAnswer(is_warm=True))


def _wait_alone() -> None:
    """The kernel may still end the thread of the last warm-up, which has no hurry either, and nothing is forked beside it."""
    end_s = time.monotonic() + _ALONE_S
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end_s:
        time.sleep(_ALONE_POLL_S)


def _received(control: socket.socket) -> tuple[ForkRequest, list[int]] | None:
    """The next request with its descriptors; None if the supervisor has ended."""
    try:
        packet, fds, _, _ = socket.recv_fds(control, PACKET_BYTES, MAX_DESCRIPTORS)
    except ConnectionResetError:
        return None
    return (msgspec.json.decode(packet, type=ForkRequest), fds) if packet else None


def _send(control: socket.socket, answer: ForkAnswer) -> bool:
    with contextlib.suppress(OSError):
        control.send(msgspec.json.encode(answer))
        return True
    return False


def _fork(control: socket.socket, request: ForkRequest, fds: list[int]) -> ForkAnswer:
    """Make the process of an actor. It is a child of the supervisor when this returns."""
    if len(os.listdir("/proc/self/task")) > 1:
        return ForkAnswer(error="expected one thread in the fork server, got several")
    said, say = os.pipe()
    try:
        between = os.fork()
    except OSError as error:
        os.close(said)
        os.close(say)
        return ForkAnswer(error=str(error))
    if not between:
        os.close(said)
        _fork_again(control, request, fds, say)
    os.close(say)
    with open(said, "rb") as end:
        text = end.read().decode()
    os.waitpid(between, 0)  # from now on the actor's parent is the supervisor
    return (
        ForkAnswer(pid=int(text), descriptors=tuple(fds[1:])) if text.isdigit() else ForkAnswer(error=text or "its fork failed")
    )


def _fork_again(control: socket.socket, request: ForkRequest, fds: list[int], say: int) -> NoReturn:
    """In the process between: fork the actor, say its process id, and end."""
    try:
        pid = os.fork()
    except OSError as error:
        os.write(say, str(error).encode())
        os._exit(ExitCode.FAULT)
    if pid:
        os.write(say, str(pid).encode())
        os._exit(ExitCode.DONE)
    os.close(say)
    control.close()
    _become(request, fds[0])


def _become(request: ForkRequest, stdin: int) -> NoReturn:
    """In the new process: be this actor."""
    try:
        os.setsid()
        if request.name == SUPERVISOR:
            set_command_line([sys.executable, "-m", PARENT_PROGRAM])
            importlib.import_module(SUCCESSOR).become_supervisor(stdin)
        os.dup2(stdin, 0)
        os.close(stdin)
        set_command_line([sys.executable, "-m", ENTRYPOINT, request.name])
        become_child(request.name, request.warm_ups)
    except BaseException as error:  # nothing of the fork server may go on in this process
        with contextlib.suppress(OSError):
            os.write(2, f"{request.name}: its process failed at the start: {error!r}\n".encode())
    os._exit(ExitCode.FAULT)


def set_command_line(words: list[str]) -> None:
    """Show these words to `ps` and to all that look for a process by its command line, as far as there is room."""
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    begin, end = int(fields[_ARGUMENTS_AT]), int(fields[_ARGUMENTS_AT + 1])
    text = b"".join(word.encode() + b"\0" for word in words)[: end - begin - 1]
    if begin:
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


def find_fork_server(supervisor_pid: int) -> int:
    """The process id of the fork server of the supervisor with this one; 0 if there is none now."""
    for pid in children_of(supervisor_pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as line:
            if _PROGRAM.encode() in line.read().split(b"\0"):
                return pid
    return 0


def is_forked(name: str) -> bool:
    """True for actors that a fork server may make."""
    return role_of(name) in FORKED_ROLES


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
