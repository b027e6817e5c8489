"""One incarnation of a child: read the spawn spec, set up logs and the event loop, then run the actor of that role."""

from __future__ import annotations

import supervisor.children.quick_imports  # noqa: F401  before all that import structlog or numpy

# isort: split
import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from messages.descriptors.reserve import hold_reserve
from messages.errors import ConfigError
from messages.lifecycle.spawn_spec import SpawnSpec, read_spawn_spec
from messages.outcomes import ExitCode
from supervisor.logs import configure_logs

_SWITCH_S = 2e-4  # how long a thread keeps the interpreter while another waits: a step thread must not delay messages

Run = Callable[[SpawnSpec], Awaitable[int]]


def run_incarnation(find_run: Callable[[str], Run]) -> int:
    """Wait for the spawn spec on standard input, then run that actor; returns the exit status. `find_run(name)` imports it."""
    hold_reserve()
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


async def _run(run: Run, spawn_spec: SpawnSpec) -> int:
    return await run(spawn_spec)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
