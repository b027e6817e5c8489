"""`supervisor logs`: shows the log file of a server, whole or in part, and follows it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import fail, run_dir_for, server_flags
from supervisor.shell.interrupts import Interrupts

if TYPE_CHECKING:
    from supervisor.log_reader.lines import LogLine, Selection
    from supervisor.log_reader.text import LogText

_LOOK_EVERY_S = 0.2
_LEVELS = ("debug", "info", "warning", "error")
_REQUEST = "The story of one request over all processes and their lives: its id or its X-Request-Id; all of a trace by its id."
_SINCE = 'From this time on: a time before now such as "10min" or "2h", or a UTC time such as "2026-11-28T11:00".'
_STATE_DIR = "State directory of a server that does not run, if it is not the usual one of the port."


@click.command(cls=CommandWithHints, short_help="Show the log of a server, of one process or of one request.")
@click.argument("actor", required=False, default="")
@click.option("--request", default="", help=_REQUEST)
@click.option("--since", default="", help=_SINCE)
@click.option("--level", type=click.Choice(_LEVELS), default="debug", help="Lines of at least this level. Default: all.")
@click.option("--lines", "-n", "n_lines", type=click.IntRange(0), help="At most so many lines, the newest ones.")
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON, as they stand in the file.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines until Ctrl-C, also through deaths and restarts.")
@click.option("--state-dir", type=click.Path(path_type=Path), help=_STATE_DIR)
@server_flags
def logs(
    actor: str,
    request: str,
    since: str,
    level: str,
    n_lines: int | None,
    as_json: bool,
    follow: bool,
    state_dir: Path | None,
    port: int,
    run_dir: Path | None,
) -> None:
    """Show the log of a server that runs, or of the last one: the file server.log of its state directory and the older ones
    beside it. ACTOR: lines of one process (worker/0.1) or of one role (worker), and lines of the supervisor about it.

    \b
    Exit status:
      0  shown
      2  an option cannot be used
      6  there is no log, or none that can be read
    """
    with Interrupts() as interrupts:
        from supervisor.log_reader.lines import Selection

        path = _path(port, run_dir, state_dir)
        _check_log(path, may_come=follow)
        wanted = Selection(actor, request, _since_s(since, time.time()), level)
        _show(path, wanted, n_lines, as_json, interrupts if follow else None)


def _check_log(path: Path, *, may_come: bool) -> None:
    """End the program with a message if the log cannot be read. `may_come`: it need not be there yet."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        if not may_come:
            wanted = f"expected the log of a server at {path}, got no file"
            fail(ExitCode.NO_SERVER, f"{wanted}; --port, --run-dir or --state-dir names it")
    except OSError as error:
        fail(ExitCode.NO_SERVER, f"expected a log that can be read at {path}, got: {error.strerror}")


def _show(path: Path, wanted: Selection, n_lines: int | None, as_json: bool, follow: Interrupts | None) -> None:
    """Print the lines that there are. `follow`: go on with new ones until it has come."""
    from supervisor.log_reader.files import LogReader
    from supervisor.log_reader.lines import selected, story, with_own_ids
    from supervisor.log_reader.text import LogText

    reader = LogReader(path)
    raw: Iterable[bytes] = reader.read_all()
    if wanted.request:
        raw = list(raw)
        wanted = with_own_ids(raw, wanted)
    found = story(raw, wanted) if wanted.request and not as_json else list(selected(raw, wanted))
    if not (found or follow is not None):
        click.echo(f"supervisor: no such line in {path}{_actors_there(path, wanted.actor)}", err=True)
    text = None if as_json else LogText(_has_colors(), wanted.own_ids[0] if len(wanted.own_ids) == 1 else wanted.request)
    try:
        _say(found if n_lines is None else found[len(found) - min(n_lines, len(found)) :], text)
        while follow is not None and not follow.has_come:
            time.sleep(_LOOK_EVERY_S)
            _say(selected(reader.read_new(), wanted), text)
    finally:
        reader.close()


def _actors_there(path: Path, wanted: str) -> str:
    """What a log without a line of the wanted actor has instead: its name may be misspelt. "" if it has such lines."""
    from messages.ids import role_of
    from supervisor.log_reader.files import LogReader
    from supervisor.log_reader.lines import actors_in

    reader = LogReader(path)
    try:
        names = actors_in(reader.read_all()) if wanted else set()
    finally:
        reader.close()
    if not names or wanted in names | {role_of(name) for name in names}:
        return ""
    return f"; it has none of {wanted}, but of {', '.join(sorted(names))}"


def _say(lines: Iterable[LogLine], text: LogText | None) -> None:
    for line in lines:
        for row in [line.raw.decode(errors="replace")] if text is None else text.lines(line):
            click.echo(row)


def _has_colors() -> bool:
    import os
    import sys

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _path(port: int, run_dir: Path | None, state_dir: Path | None) -> Path:
    """Where the log file is, or would be."""
    import os

    from messages.log_file.rotated_file import LOG_FILE
    from supervisor.directories.state_dir import default_state_dir
    from supervisor.log_reader.place import log_file_of

    if state_dir is not None:
        return state_dir.absolute() / LOG_FILE
    where = run_dir_for(port, run_dir)
    own = where / LOG_FILE
    return log_file_of(where) or (
        own if run_dir or own.exists() else default_state_dir(port, os.environ, Path.home()) / LOG_FILE
    )


def _since_s(since: str, now_s: float) -> float:
    """The Unix time that the option names; 0 if it is not given. Exits as UNUSABLE for any other text."""
    from datetime import UTC, datetime

    from supervisor.config.units import without_units

    if not since:
        return 0.0
    span_s = without_units({"since_s": since})["since_s"]
    if isinstance(span_s, int | float):
        return now_s - span_s
    try:
        at = datetime.fromisoformat(since)
    except ValueError:
        fail(ExitCode.UNUSABLE, f'--since: expected a time such as "10min" or "2026-11-28T11:00", got "{since}"')
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
