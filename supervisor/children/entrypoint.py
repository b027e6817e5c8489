"""The first code in every child. It imports next to nothing; `incarnation.py` has the rest.

    python -m supervisor.children.entrypoint NAME [WARM-UP ...]       with the spawn spec as JSON on standard input

A spare process does warm-ups before it waits for its spawn spec. A warm-up is `module`, which is imported, or
`module:function=argument`: the function is called with that text and keeps what it has loaded.

A spare does this, and imports all that it needs, without hurry, so that processes that serve come first.

Exit status: 0 after Stop; 1 after a fault, or if the supervisor ends before it has sent a spawn spec; 2 if the spawn spec or
its settings cannot be used, because a restart would not help.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from messages.ids import role_of
from supervisor.parent.unhurried import run_unhurried

if TYPE_CHECKING:
    from supervisor.children.incarnation import Run

RUN_BY_ROLE = {
    "custodian": "actors.custodian.custodian_actor:run",
    "accounts": "actors.accounts.accounts_actor:run",
    "gpu_monitor": "actors.gpu_monitor.gpu_monitor_actor:run",
    "cache_directory": "actors.cache_directory.directory_actor:run",
    "speculation": "actors.speculation.speculation_actor:run",
    "vault": "actors.vault.vault_actor:run",
    "embedder": "gpu_workers.embedding.embedder:run",
    "worker": "gpu_workers.process.worker:run_worker",
    "scheduler": "actors.scheduler.scheduler_actor:run",
    "gateway": "actors.gateway.gateway_actor:run",
}
_INCARNATION = "supervisor.children.incarnation"
_PR_SET_NAME = 15
_COLLECT_AT = (50_000, 10, 10)  # new containers before a collection, and collections before one of the next generation


def main(argv: list[str]) -> int:
    """Run one incarnation; returns the exit status. `argv`: [name, warm-ups ...]."""
    name, *warm = argv
    return _run(name, warm)


def become_child(name: str, warm: Sequence[str]) -> NoReturn:
    """Run one incarnation in a process that was forked for it, and exit."""
    leave(_run(name, warm))


def _run(name: str, warm: Sequence[str]) -> int:
    gc.set_threshold(*_COLLECT_AT)
    ignore_signals(name)
    if warm:
        run_unhurried(lambda: _do_warm_ups((_INCARNATION, *warm)))
    return importlib.import_module(_INCARNATION).run_incarnation(find_run)


def _do_warm_ups(warm: Sequence[str]) -> None:
    for warm_up in warm:
        do_warm_up(warm_up)


def find_run(name: str) -> Run:
    """The `run` function of the actor with this name."""
    module, _, function = RUN_BY_ROLE[role_of(name)].partition(":")
    return getattr(importlib.import_module(module), function)


def warm_ups(name: str) -> tuple[str, ...]:
    """The modules that a spare of this actor imports in advance."""
    return ("uvloop", RUN_BY_ROLE[role_of(name)].partition(":")[0])


def do_warm_up(warm_up: str) -> None:
    """Import a module, and call its function when the warm-up names one."""
    call, _, argument = warm_up.partition("=")
    module, colon, function = call.partition(":")
    loaded = importlib.import_module(module)
    if colon:
        getattr(loaded, function)(argument)


def ignore_signals(name: str) -> None:
    """Ignore the signals that a terminal or a service manager sends to all processes: only the supervisor handles them.

    Also sets the process name that `ps` shows.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def leave(status: int) -> NoReturn:
    """Exit without the interpreter's finalisation: all files and sockets are closed, and unloading torch takes too long."""
    from messages.log_file.log_tee import flush_log_file

    flush_log_file()
    with contextlib.suppress(OSError):  # a full disk must not change the exit status
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
