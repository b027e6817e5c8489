"""`supervisor restart`: its options, its progress lines, its exit status."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import SECONDS, fail, fail_without_server, load, reach, run_dir_for, server_flags

if TYPE_CHECKING:
    from messages.lifecycle.tree import RestartProgress
    from supervisor.directories.server import Server

_ASK_EVERY_S = 0.1
_GONE_S = 5.0  # a server whose run directory was removed makes it again within a second or two


@click.command(cls=CommandWithHints, short_help="Replace every process while the server goes on serving.")
@click.option("--rolling", is_flag=True, help="One process after the other, without a lost request: so it is done in any case.")
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="A new setting; may be repeated.")
@click.option("--deadline", "deadline_s", type=SECONDS, default=3600.0, show_default=True, help="Seconds to wait for the end.")
@click.option("--json", "as_json", is_flag=True, help="Print each step as a line of JSON.")
@server_flags
def restart(
    rolling: bool, assignments: tuple[str, ...], deadline_s: float, as_json: bool, port: int, run_dir: Path | None
) -> None:
    """Replace every process of a running server by one that runs the program as it is on disk now, with the configuration as it
    is now: the file of its start is read again, its flags stay, --set comes on top. A relative path begins in the directory of
    the start. One is replaced after the other, and no request is lost.

    \b
    Exit status:
      0  everything is replaced
      1  a process did not become ready; the later ones are as they were
      2  the configuration cannot be used, or not while the server runs
      6  no server was found
      7  the deadline passed; the restart goes on
    """
    from supervisor.operator import calls

    where = run_dir_for(port, run_dir)
    reach(lambda: calls.check_running(where))
    server = _with_settings_of_now(where, assignments)
    before = reach(lambda: calls.ask_status(where)).restart
    refusal = reach(lambda: calls.ask_restart(where, server.encoded()))
    if refusal:
        fail(ExitCode.UNUSABLE, refusal)
    number = 1 if before is None else before.number + 1
    _follow(where, number, deadline_s, _say_json if as_json else _say)


def _with_settings_of_now(where: Path, assignments: tuple[str, ...]) -> Server:
    """What the server in a run directory consists of after the restart. Exits as UNUSABLE when that is not possible."""
    import msgspec

    from messages.errors import ConfigError
    from supervisor.directories.run_dir import RunDir
    from supervisor.directories.server import read_server
    from supervisor.restart.reload import lacks_accounts, reloaded

    try:
        server = read_server(RunDir.open_unlocked(where))
        flags = dict(server.origin.flags) if server.origin is not None else {"config": None, "assignments": []}
        flags["assignments"] = [*flags["assignments"], *assignments]
        with in_directory_of(where):
            found = reloaded(server, load(flags), flags)
    except (ConfigError, OSError, msgspec.MsgspecError) as error:
        fail(ExitCode.UNUSABLE, str(error))
    if lacks_accounts(server):
        click.echo("supervisor: set no limits of tenants before the next stop and start, which adds accounts/0", err=True)
    return found


@contextmanager
def in_directory_of(where: Path) -> Iterator[None]:
    """Work in the directory in which the server of a run directory was started: a relative path in its settings begins there.
    Stays here if that is not known."""
    from supervisor.directories.run_dir_files import read_pid

    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(chdir(f"/proc/{read_pid(where)}/cwd"))
        yield


def _follow(where: Path, number: int, deadline_s: float, say: Callable[[str, str, float], None]) -> None:
    """Say what is replaced until all is; exits with the status that says how it ended."""
    from supervisor.operator.calls import NoServer

    began_s, n_said = time.monotonic(), 0
    heard_s = began_s
    while True:
        now_s = time.monotonic()
        took_s = now_s - began_s
        try:
            progress, heard_s = _progress(where), now_s
        except NoServer as error:
            progress = None
            if now_s - heard_s > _GONE_S:
                fail_without_server(
                    NoServer(f"{error}: it has ended during the restart, or somebody has removed its directory")
                )
        if progress is not None and progress.number == number:
            for title in progress.done[n_said:]:
                say("replaced", title, took_s)
            n_said = len(progress.done)
            if progress.failure:
                say("stopped", progress.failure, took_s)
                fail(ExitCode.FAULT, f"{progress.failure}; left as they were: {', '.join(progress.todo)}")
            if not progress.todo:
                say("done", f"{n_said} groups of processes", took_s)
                return
        if took_s > deadline_s:
            fail(ExitCode.DEADLINE, f"the restart goes on after {deadline_s:g} s; supervisor status --json shows it")
        time.sleep(_ASK_EVERY_S)


def _progress(where: Path) -> RestartProgress | None:
    """How far the restart has come; None while the supervisor itself is being replaced. Raises: NoServer."""
    from supervisor.operator import calls

    try:
        return calls.ask_status(where).restart
    except calls.NoServer:
        if calls.is_alive(where):
            return None
        raise


def _say(event: str, what: str, after_s: float) -> None:
    if event != "stopped":  # the last line says it
        click.echo(f"{after_s:6.1f} s  {event}: {what}")


def _say_json(event: str, what: Any, after_s: float) -> None:
    click.echo(json.dumps({"event": event, "what": what, "after_s": round(after_s, 3)}))
