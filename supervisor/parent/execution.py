"""The parent's program, executed in place: the process keeps its id, its children and the descriptors that it holds.

The parent keeps what it knows in a memory file, whose descriptor is named in the environment. Only the standard library
is imported here, because the parent imports this file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# They mean nothing to a server, and would end a process that does not expect them, or stop the parent alone (Ctrl-Z, or a write
# to a terminal that lets only its foreground do that), which its supervisor would then replace. All processes inherit this.
_OF_TERMINALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
IGNORED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, *_OF_TERMINALS)
HANDLED = (*STOP_SIGNALS, signal.SIGCHLD)
PARENT_PROGRAM = "supervisor.parent_program"
_VARIABLE = "TARDIGRADE_PARENT_STATE"  # the number of the descriptor


@dataclass(frozen=True)
class ParentState:
    """What a parent must know to go on."""

    kept: dict[str, int]  # text of a Keep packet -> descriptor
    exits: dict[int, int]  # process id -> return code of processes that have lost their supervisor
    orders: list[int]  # signals that order a stop; the next supervisor gets them too
    failures_s: list[float]  # when supervisors have failed, by the monotonic clock
    next_supervisor: tuple[int, int] | None = None  # that waits: its process id, and the descriptor of our end of its link


def execute_parent(state: ParentState) -> NoReturn:
    """Replace this process by a parent that goes on with `state`. It keeps its process id and its children.

    The signals in `HANDLED` are blocked before, so that the new program gets those that come meanwhile.

    Raises: OSError; then the signals are still blocked, and nothing else has changed.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    fd = os.memfd_create("parent")
    held = [fd, *state.kept.values(), *(state.next_supervisor or ())[1:]]
    known = {key: value for key, value in asdict(state).items() if value is not None}  # what older releases know, too
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(json.dumps(known).encode())
        for one in held:
            os.set_inheritable(one, True)
        os.execve(sys.executable, [sys.executable, "-m", PARENT_PROGRAM], {**os.environ, _VARIABLE: str(fd)})
    except OSError:
        for one in held:
            os.set_inheritable(one, False)
        os.close(fd)
        raise


def load_state() -> ParentState | None:
    """What the process knew before this program was executed in it; None in a parent that begins a server. Called once."""
    if (fd := os.environ.pop(_VARIABLE, None)) is None:
        return None
    with open(int(fd), "rb") as file:
        file.seek(0)
        state = ParentState(**json.load(file))
    for kept in (*state.kept.values(), *(state.next_supervisor or ())[1:]):
        os.set_inheritable(kept, False)
    return replace(state, exits={int(pid): code for pid, code in state.exits.items()})
