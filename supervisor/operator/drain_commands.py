"""`supervisor drain` and `supervisor stop`: new requests are refused, those in progress are finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import SECONDS, fail, reach, run_dir_for, server_flags

_LATER = "ends by itself when its requests are finished or supervisor.drain_s has passed"


@click.command(cls=CommandWithHints, short_help="Refuse new requests, wait for those in progress.")
@click.option("--deadline", "deadline_s", type=SECONDS, default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--then-stop", is_flag=True, help="Stop the server when they have finished.")
@click.option("--undo", is_flag=True, help="Take a drain back: new requests are taken again.")
@server_flags
def drain(port: int, run_dir: Path | None, deadline_s: float, then_stop: bool, undo: bool) -> None:
    """Refuse new requests and wait until the requests in progress have finished.

    \b
    Exit status (with --then-stop: or that of the server, see start --help):
      0  no request is in progress; with --undo: new requests are taken
      2  with --undo: the server is stopping, or a journal cannot be written
      6  no server was found
      7  the deadline passed; the server still refuses new requests
    """
    from supervisor.operator import calls as operator_calls

    where = run_dir_for(port, run_dir)
    if undo:
        _undo_drain(where, deadline_s)
        return
    if then_stop:
        _stop(where, deadline_s + 60.0, lambda: operator_calls.ask_drain(where, deadline_s, True))
        return
    reach(lambda: operator_calls.ask_drain(where, deadline_s, False))
    left = reach(lambda: operator_calls.wait_drained(where, deadline_s))
    if left is not None:
        count = "1 request is" if left == 1 else f"{left} requests are"
        after = "new ones stay refused, and supervisor stop ends the server"
        fail(ExitCode.DEADLINE, f"after {deadline_s:g} s {count} still in progress; {after}")
    next_steps = "supervisor stop ends the server, and supervisor drain --undo takes new requests again"
    click.echo(f"drained: no request is in progress, and new ones are refused; {next_steps}")


def _undo_drain(where: Path, deadline_s: float) -> None:
    from supervisor.operator import calls as operator_calls

    if refusal := reach(lambda: operator_calls.ask_serve(where)):
        fail(ExitCode.UNUSABLE, refusal)
    if not reach(lambda: operator_calls.wait_serving(where, deadline_s)):
        fail(ExitCode.DEADLINE, f"after {deadline_s:g} s some gateway takes no requests yet; supervisor status shows it")
    click.echo("new requests are taken again")


@click.command(cls=CommandWithHints, short_help="Finish the requests in progress, then end.")
@click.option("--deadline", "deadline_s", type=SECONDS, default=120.0, show_default=True, help="Seconds to wait.")
@server_flags
def stop(port: int, run_dir: Path | None, deadline_s: float) -> None:
    """Let a running server finish the requests in progress, then end it.

    \b
    Exit status (or that of the server, see start --help):
      0  the server ended as asked
      6  no server was found
      7  the deadline passed, or the server ended with unfinished requests
    """
    from supervisor.operator import calls as operator_calls

    where = run_dir_for(port, run_dir)
    _stop(where, deadline_s, lambda: operator_calls.ask_stop(where))


def _stop(where: Path, deadline_s: float, ask: Any) -> None:
    """Ask for the stop, wait until no process of the server is left, and exit with its status."""
    from supervisor.directories.run_dir_files import read_end
    from supervisor.operator.ending import ServerEnd

    end = ServerEnd(where)
    reach(ask)
    if not end.wait(deadline_s):
        fail(ExitCode.DEADLINE, f"the server is still running after {deadline_s:g} s; it {_LATER}")
    for killed in end.killed:
        click.echo(f"supervisor: {killed} did not end and was killed", err=True)
    status, reason = read_end(where)
    if status:
        fail(status, reason)
    click.echo("stopped")
