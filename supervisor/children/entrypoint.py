"""The first code in every child: read the spawn spec, set up logs, signals and the event loop, then run the actor of that role.

    python -m supervisor.children.entrypoint NAME [WARM-UP ...]       with the spawn spec as JSON on standard input

A spare process does warm-ups before it waits for its spawn spec. A warm-up is `module`, which is imported, or
`module:function=argument`: the function is called with that text and keeps what it has loaded.

Exit status: 0 after Stop; 1 after a fault, or if the supervisor ends before it has sent a spawn spec; 2 if the spawn spec or
its settings cannot be used, because a restart would not help.
"""

from __future__ import annotations

import supervisor.children.quick_imports  # noqa: F401  before all that import structlog or numpy

# isort: split
import asyncio
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import structlog

from messages.descriptors.reserve import hold_reserve
from messages.errors import ConfigError
from messages.ids import role_of
from messages.lifecycle.spawn_spec import SpawnSpec, read_spawn_spec
from messages.log_file.log_tee import flush_log_file
from messages.outcomes import ExitCode
from supervisor.logs import configure_logs

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
_SWITCH_S = 2e-4  # how long a thread keeps the interpreter while another waits: a step thread must not delay messages
_PR_SET_NAME = 15
_COLLECT_AT = (10_000, 10, 10)  # new containers before a collection, and collections before one of the next generation

Run = Callable[[SpawnSpec], Awaitable[int]]


def main(argv: list[str]) -> int:
    """Run one incarnation; returns the exit status. `argv`: [name, warm-ups ...]."""
    name, *warm = argv
    hold_reserve()
    gc.set_threshold(*_COLLECT_AT)
    _ignore_signals(name)
    for warm_up in warm:
        do_warm_up(warm_up)
    spawn_spec_text = _wait_spawn_spec()
    if not spawn_spec_text:  # a spare whose supervisor has ended: nobody reads a report
        return ExitCode.FAULT
    spawn_spec = read_spawn_spec(spawn_spec_text)
    name, incarnation = spawn_spec.name, spawn_spec.incarnation
    configure_logs(
        spawn_spec.log_format, spawn_spec.log_level, name, incarnation, spawn_spec.log_file, Path(spawn_spec.run_dir)
    )
    log = structlog.get_logger()
    try:
        sys.setswitchinterval(_SWITCH_S)
        run = find_run(spawn_spec.name)
        gc.freeze()  # a collection that walks through all that is imported stops an actor for a tenth of a second
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(_run(run, spawn_spec))
    except ConfigError as error:
        log.error("spawn spec or settings unusable", reason=str(error))
        return ExitCode.UNUSABLE
    except Exception:
        log.exception("actor failed")
        return ExitCode.FAULT


def _wait_spawn_spec() -> bytes:
    """Say that the warm-ups are done, and wait for the spawn spec; b"" if the supervisor has ended. Standard input is a
    socket."""
    with contextlib.suppress(OSError):  # of another program, which gives a pipe
        os.write(sys.stdin.fileno(), b"w")
    try:
        return sys.stdin.buffer.read()
    except ConnectionResetError:
        return b""


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


async def _run(run: Run, spawn_spec: SpawnSpec) -> int:
    return await run(spawn_spec)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _ignore_signals(name: str) -> None:
    """Ignore the signals that a terminal or a service manager sends to all processes: only the supervisor handles them.

    Also sets the process name that `ps` shows.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def leave(status: int) -> NoReturn:
    """Exit without the interpreter's finalisation: all files and sockets are closed, and unloading torch takes too long."""
    flush_log_file()
    with contextlib.suppress(OSError):  # a full disk must not change the exit status
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
