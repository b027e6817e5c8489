"""The command line: `supervisor start | status | drain | stop | check-config`.

    exit status  means
    -----------  ---------------------------------------------------------------
    0            an orderly end
    1            a bug: the supervisor itself failed
    2            the command line or the configuration cannot be used
    3            the start failed: some child cannot become ready
    4            the budget for restarts is spent
    5            a forced stop, or a process that could not be proven dead
    6            no server was found (status, drain, stop)
    7            a deadline passed: start ended with requests that its journals keep; drain and stop did not see the end

Everything heavy is imported inside the commands: help must come at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

EXIT_USAGE = 2
EXIT_UNDEAD = 5
EXIT_NO_SERVER = 6
EXIT_DEADLINE = 7


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="tardigrade-serve", message="Tardigrade %(version)s")
def main() -> None:
    """LLM inference that survives anything."""


def _config_flags(command: Any) -> Any:
    """The flags that `start` and `check-config` share: each lies over one key of the configuration."""
    options = [
        click.option("--config", type=click.Path(dir_okay=False), help="TOML file; TARDIGRADE_CONFIG names one too."),
        click.option("--model", help="Folder, GGUF file, name on the hub, or hash-chain. Default: a small packaged model."),
        click.option("--model-name", help="Name that clients see."),
        click.option("--gpus", type=int, help="GPUs to use; 0 runs on CPU cores."),
        click.option("--tp", type=int, help="Tensor-parallel ranks of one replica."),
        click.option("--replicas", type=int, help="Copies of the model."),
        click.option("--gateways", type=int, help="Gateway processes."),
        click.option("--host", help="Address for HTTP. Default: 127.0.0.1."),
        click.option("--port", type=int, help="Port for HTTP. Default: 8000; 0: any free one."),
        click.option("--front-tcp-port", type=int, help="TCP port for ZeroMQ clients on this host."),
        click.option("--dtype", "worker__dtype", help="auto, float32, bfloat16 or float16."),
        click.option("--load-format", "worker__load_format", help="auto, or random weights of the model's shape."),
        click.option("--speculation/--no-speculation", "speculate", default=None, help="Draft tokens ahead."),
        click.option("--max-sequences", "worker__n_slots", type=int, help="Sequences that run at once."),
        click.option("--max-length", type=int, help="Tokens of one sequence, prompt and output."),
        click.option("--run-dir", help="Private directory for sockets; default: one for the port."),
        click.option("--state-dir", help="Directory of the journals; default: the run directory."),
        click.option("--log-format", help="console or json."),
        click.option("--log-level", help="auto, debug, info, warning or error."),
        click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any key of the configuration."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _load(flags: dict[str, Any]) -> Any:
    """The configuration that file and flags make; ends the process with status 2 when it cannot be used."""
    from messages.errors import ConfigError
    from supervisor.config import load_config
    from supervisor.config_file import table_of

    path, assignments = flags.pop("config"), flags.pop("assignments")
    tables = []
    for key, value in flags.items():
        if value is not None:
            section, dot, name = key.partition("__")
            tables.append({section: {name: value}} if dot else {key: value})
    try:
        return load_config(path, [*tables, *map(table_of, assignments)])
    except ConfigError as error:
        _fail(EXIT_USAGE, str(error))


def _plan(config: Any) -> Any:
    """Decide where the ranks run and print it; ends the process with status 2 when it cannot be had."""
    from messages.errors import ConfigError
    from supervisor.host import plan_start

    try:
        placement = plan_start(config)
    except ConfigError as error:
        _fail(EXIT_USAGE, str(error))
    click.echo(placement.text(), err=True)
    return placement


@main.command()
@_config_flags
def start(**flags: Any) -> None:
    """Start a server in the foreground; it says where it listens once it serves.

    \b
    supervisor start                                          a small packaged model on CPU cores
    supervisor start --model org/name --gpus 4 --tp 4         one replica over four GPUs
    supervisor start --model org/name --gpus 4 --replicas 4   four replicas, one GPU each

    SIGTERM or Ctrl-C: finish what runs, then end. Ctrl-C twice: kill everybody. Exit status: 0 in order, 2 a configuration
    that cannot be used, 3 a child that cannot become ready, 4 a spent restart budget, 5 forced, 7 requests left unfinished.
    """
    config = _load(flags)
    placement = _plan(config)
    from messages.errors import ConfigError
    from supervisor.children.run_dir import OrphanAlive
    from supervisor.start import start as run

    try:
        sys.exit(run(config, placement))
    except ConfigError as error:
        _fail(EXIT_USAGE, str(error))
    except OrphanAlive as error:
        _fail(EXIT_UNDEAD, f"these processes of a killed server do not die, and hold what a new one needs: {error}")


@main.command("check-config")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@_config_flags
def check_config(file: str | None, **flags: Any) -> None:
    """Check a configuration; print it as JSON and, on standard error, where the model would run."""
    import json

    config = _load({**flags, "config": file or flags["config"]})
    _plan(config)
    from supervisor.config import described

    click.echo(json.dumps(described(config), indent=2))


def _server_flags(command: Any) -> Any:
    """How `status`, `drain` and `stop` find their server."""
    command = click.option("--run-dir", type=click.Path(path_type=Path), help="Its run directory.")(command)
    return click.option("--port", type=int, default=8000, show_default=True, help="Its HTTP port.")(command)


def _find(port: int, run_dir: Path | None) -> Path:
    from messages.run_dir import run_dir_of

    return (run_dir or run_dir_of(port)).absolute()


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_server_flags
def status(port: int, run_dir: Path | None, as_json: bool) -> None:
    """Show the state of a running server."""
    from supervisor.operator import calls as operator_calls
    from supervisor.operator.status_table import print_status

    report = _reach(lambda: operator_calls.ask_status(_find(port, run_dir)))
    print_status(report, as_json)


@main.command()
@click.option("--deadline", "deadline_s", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--then-stop", is_flag=True, help="Stop the server afterwards.")
@_server_flags
def drain(port: int, run_dir: Path | None, deadline_s: float, then_stop: bool) -> None:
    """Refuse new requests and wait until those in progress have finished."""
    from supervisor.operator import calls as operator_calls

    where = _find(port, run_dir)
    if then_stop:
        _stop(where, deadline_s + 60.0, lambda: operator_calls.order_drain(where, deadline_s, True))
        return
    _reach(lambda: operator_calls.order_drain(where, deadline_s, False))
    left = _reach(lambda: operator_calls.wait_drained(where, deadline_s))
    if left is not None:
        _fail(EXIT_DEADLINE, f"after {deadline_s:g} s {left} requests are still in progress; nothing new is taken")
    click.echo("drained")


@main.command()
@click.option("--deadline", "deadline_s", type=float, default=120.0, show_default=True, help="Seconds to wait.")
@_server_flags
def stop(port: int, run_dir: Path | None, deadline_s: float) -> None:
    """Drain a running server, then end it in order."""
    from supervisor.operator import calls as operator_calls

    where = _find(port, run_dir)
    _stop(where, deadline_s, lambda: operator_calls.order_stop(where))


def _stop(where: Path, deadline_s: float, order: Any) -> None:
    """Order an end, wait for it, and end with the exit status of the server."""
    from supervisor.children.run_dir import read_end
    from supervisor.operator import calls as operator_calls

    _reach(order)
    if not operator_calls.wait_gone(where, deadline_s):
        _fail(EXIT_DEADLINE, f"the server is still there after {deadline_s:g} s")
    status, words = read_end(where)
    if status:
        _fail(status, words)
    click.echo("stopped")


def _reach(call: Any) -> Any:
    """Call a server; ends the process with status 6 when there is none."""
    from supervisor.operator.calls import NoServer

    try:
        return call()
    except NoServer as error:
        _fail(EXIT_NO_SERVER, str(error))


def _fail(status: int, text: str) -> NoReturn:
    click.echo(f"supervisor: {text}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main(prog_name="supervisor")
