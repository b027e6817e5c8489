"""`supervisor doctor`: its options, its table, its exit status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import run_dir_for, server_flags

if TYPE_CHECKING:
    from supervisor.doctor.checks import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "failure": ("FAILURE", "red")}
_STATE_DIR = "Directory of the journals. Default: that of the server that runs there, else that of the port."


@click.command(cls=CommandWithHints, short_help="Look for what would keep a server from working well here.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that HTTP would listen on.")
@click.option("--state-dir", type=click.Path(path_type=Path), help=_STATE_DIR)
@click.option("--all", "show_all", is_flag=True, help="Show what is well, too.")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@server_flags
def doctor(host: str, state_dir: Path | None, show_all: bool, as_json: bool, port: int, run_dir: Path | None) -> None:
    """Look at driver, packages, limits, memory, disk, clock, directories and port of this machine. Each thing that is not well
    is shown with a command that mends it. Nothing is changed.

    \b
    Exit status:
      0  nothing keeps a server from working; there may be warnings
      2  something does
    """
    from supervisor.access.place import state_dir_for, state_dir_of_run_dir
    from supervisor.doctor.checks import Verdict, findings
    from supervisor.doctor.collect import collect
    from supervisor.operator.calls import is_alive

    where = run_dir_for(port, run_dir)
    state = state_dir or (state_dir_of_run_dir(where) if run_dir else state_dir_for(port, None))
    found = findings(collect(host, port, where, state.absolute(), is_alive(where)))
    if as_json:
        _print_json(found)
    else:
        _print(found, show_all)
    if any(one.verdict is Verdict.FAILURE for one in found):
        sys.exit(ExitCode.UNUSABLE)


def _print_json(found: list[Finding]) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def _print(found: list[Finding], show_all: bool) -> None:
    for one in found:
        mark, color = _MARKS[one.verdict]
        if show_all or one.repair:
            click.echo(f"{click.style(f'{mark:<8}', fg=color)} {one.check}: {one.text}")
            if one.repair:
                click.echo(f"{'':<8}   {one.repair}")
    n_good = sum(not one.repair for one in found)
    click.echo(f"{n_good} of {len(found)} checks found nothing" + ("" if show_all else "; --all shows them"))
