"""The first code in every child: read the birth, set up logs, signals and the event loop, then run the actor of that role.

    python -m supervisor.children.entrypoint NAME PARENT_PID [WARM-UP ...]       with the Birth as JSON on standard input

A spare process has warm-ups to do before it waits for its birth: `module`, imported; or `module:function=argument`, called
with that text, for what a life would have to load and the function keeps.

Exit status: 0 after Stop; 1 after a fault; 2 when the birth or its settings cannot be used, so that a restart would be no help.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from messages.birth import Birth, read_birth
from messages.child import EXIT_FAULT, EXIT_UNUSABLE
from messages.errors import ConfigError
from messages.ids import role_of
from supervisor.logs import configure_logs

RUN_BY_ROLE = {
    "cache_directory": "actors.cache_directory.directory_actor:run",
    "speculation": "actors.speculation.speculation_actor:run",
    "worker": "gpu_workers.process.worker:run_worker",
    "scheduler": "actors.scheduler.scheduler_actor:run",
    "gateway": "actors.gateway.gateway_actor:run",
}
_SWITCH_S = 2e-4  # how long a thread keeps the interpreter while another waits: a step thread must not hold up mail
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15

Run = Callable[[Birth], Awaitable[int]]


def main(argv: list[str]) -> int:
    """Live one life. `argv` is [name, parent's process id, warm-ups while there is no birth yet]."""
    name, parent, warm = argv[0], int(argv[1]), argv[2:]
    _die_with(parent)
    _settle(name)
    for warm_up in warm:
        do_warm_up(warm_up)
    birth = read_birth(sys.stdin.buffer.read())
    configure_logs(birth.log_format, birth.log_level, birth.name, birth.incarnation)
    log = structlog.get_logger()
    try:
        sys.setswitchinterval(_SWITCH_S)
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(_live(find_run(birth.name), birth))
    except ConfigError as error:
        log.error("unusable", reason=str(error))
        return EXIT_UNUSABLE
    except Exception:
        log.exception("died")
        return EXIT_FAULT


def find_run(name: str) -> Run:
    """The function that lives the life of an actor of this name."""
    module, _, function = RUN_BY_ROLE[role_of(name)].partition(":")
    return getattr(importlib.import_module(module), function)


def warm_ups(name: str) -> tuple[str, ...]:
    """What a spare of this actor imports in advance."""
    return ("uvloop", RUN_BY_ROLE[role_of(name)].partition(":")[0])


def do_warm_up(warm_up: str) -> None:
    """Import a module; call its function where one is named."""
    call, _, argument = warm_up.partition("=")
    module, colon, function = call.partition(":")
    loaded = importlib.import_module(module)
    if colon:
        getattr(loaded, function)(argument)


async def _live(run: Run, birth: Birth) -> int:
    return await run(birth)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _die_with(parent: int) -> None:
    """No orphan outlives its supervisor: the kernel kills us with it. It may have died before we could ask for that."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(EXIT_FAULT)


def _settle(name: str) -> None:
    """Signals that a terminal or a service manager sends to a whole group are the supervisor's to answer, not ours."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def leave(status: int) -> NoReturn:
    """End without the interpreter's farewell: all that matters has been closed, and unloading torch takes longer than a stop
    should."""
    with contextlib.suppress(OSError):  # what cannot be written must not change how this life ended
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
