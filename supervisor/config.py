"""The configuration of a server: one frozen struct, a section for each actor's own settings, checked as a whole.

A TOML file gives the base, flags lie over it, defaults fill the rest. The only environment variable is TARDIGRADE_CONFIG,
which names the file. Unknown keys are refused. What the supervisor works out itself (where the model is, which rank, which
socket) cannot be set in a section; the refusal names the key that can.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from actors.cache_directory.settings import DirectorySettings
from actors.gateway.settings import GatewaySettings
from actors.scheduler.settings import SchedulerSettings
from actors.speculation.settings import SpeculationSettings
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.config_file import Table, convert, overlay, read_table

CONFIG_VARIABLE = "TARDIGRADE_CONFIG"

_Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0)]
_Small = Annotated[int, msgspec.Meta(ge=1, le=1024)]

_DERIVED = {  # (section, key): where an operator says it
    ("worker", "model_folder"): "model",
    ("worker", "device"): "gpus",
    ("worker", "device_index"): "gpus",
    ("worker", "rank"): "tp",
    ("worker", "tp"): "tp",
    ("worker", "cpu_ranks"): "tp and replicas",
    ("worker", "max_length"): "max_length",
    ("scheduler", "tp"): "tp",
    ("scheduler", "speculation"): "speculate",
    ("gateway", "model_folder"): "model",
    ("gateway", "model_name"): "model_name",
    ("gateway", "max_length"): "max_length",
    ("gateway", "front_endpoint"): "run_dir",
    ("gateway", "front_tcp_endpoint"): "front_tcp_port",
    ("gateway", "journal_path"): "state_dir",
}


class SupervisorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long each turn of a life may take, and how many lives there are."""

    beat_s: _Seconds = 0.5  # how often each child says Progress
    hello_s: _Seconds = 60.0  # from the spawn to Hello
    ready_s: _Seconds = 60.0  # from Hello to Ready
    worker_ready_s: _Seconds = 900.0  # the same for a worker, from each news of its loading on
    frozen_s: _Seconds = 5.0  # without a beat a child is killed
    step_s: _Seconds = 60.0  # a step on a GPU
    first_step_s: _Seconds = 600.0  # the first one, which may compile and tune
    cpu_step_s: _Seconds = 900.0  # a step on CPU cores
    drain_s: _Seconds = 30.0  # requests may take so long to finish at an orderly stop
    stop_s: _Seconds = 10.0  # then each group of children, to leave
    actor_restarts: Annotated[int, msgspec.Meta(ge=0)] = 300  # of one actor within actor_window_s seconds
    actor_window_s: _Seconds = 60.0
    gang_restarts: Annotated[int, msgspec.Meta(ge=0)] = 300  # of one gang within gang_window_s seconds
    gang_window_s: _Seconds = 300.0
    start_attempts: _Small = 3  # first starts in a row that did not become ready
    restart_attempts: _Small = 10  # the same for a group that has been ready before
    spares: bool = True  # keep a warm process for each child: restarts take milliseconds, idle memory about 60 MB each


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that an operator can say."""

    model: str = ""  # a folder, a GGUF file, a name on the hub, "hash-chain"; empty: the small model that a package ships
    model_name: str = ""  # what clients see; empty: the model's own name
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None  # None: all that are there; 0: CPU cores
    tp: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0  # ranks of one replica; 0: see supervisor/policy/placement.py
    replicas: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0  # copies of the model; 0: likewise
    gateways: _Small = 1
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8000  # 0: any free one
    front_tcp_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0  # for ZeroMQ clients; 0: ipc only
    front_tcp_host: str = "127.0.0.1"
    max_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens of one sequence; 0: what the model was made for
    speculate: bool = True
    run_dir: str = ""  # empty: a private directory for this port
    state_dir: str = ""  # journals; empty: the run directory
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["auto", "debug", "info", "warning", "error"] = "auto"  # auto: warning on a terminal, else info
    supervisor: SupervisorSettings = SupervisorSettings()
    gateway: GatewaySettings = GatewaySettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    cache_directory: DirectorySettings = DirectorySettings()
    speculation: SpeculationSettings = SpeculationSettings()
    worker: WorkerSettings = WorkerSettings()


def load_config(path: str | None, flags: Iterable[Table] = ()) -> ServerConfig:
    """File, then flags in order, then checks.

    Raises: ConfigError naming the key, what was expected and what came.
    """
    chosen = path or os.environ.get(CONFIG_VARIABLE)
    table = read_table(Path(chosen)) if chosen else {}
    for flag in flags:
        table = overlay(table, flag)
    _refuse_derived(table)
    config = convert(table, ServerConfig)
    _check_whole(config)
    return config


def described(config: ServerConfig) -> Table:
    """The configuration as an operator could have written it."""
    table = msgspec.to_builtins(config)
    for section, key in _DERIVED:
        del table[section][key]
    return table


def _refuse_derived(table: Table) -> None:
    for (section, key), instead in _DERIVED.items():
        found: Any = table.get(section)
        if isinstance(found, dict) and key in found:
            raise ConfigError(f"{section}.{key}: expected to be left to the supervisor; say {instead} instead")


def _check_whole(config: ServerConfig) -> None:
    """What no section can see alone."""
    if config.front_tcp_port and config.front_tcp_host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigError(
            f"front_tcp_host: expected an address of this host (127.0.0.1), got {config.front_tcp_host};"
            " ZeroMQ over a network needs keys, which this version has not"
        )
    if config.port and config.port == config.front_tcp_port:
        raise ConfigError(f"front_tcp_port: expected another port than port, got {config.port} for both")
    if config.supervisor.frozen_s < 4 * config.supervisor.beat_s:
        raise ConfigError(
            f"supervisor.frozen_s: expected at least four beats ({4 * config.supervisor.beat_s:g} s),"
            f" got {config.supervisor.frozen_s:g}"
        )
    if config.scheduler.unacked_messages < 2 * config.gateway.ack_messages:
        raise ConfigError(
            f"scheduler.unacked_messages: expected at least twice gateway.ack_messages ({2 * config.gateway.ack_messages}),"
            f" got {config.scheduler.unacked_messages}"
        )
    if config.gateways > 1 and config.front_tcp_port + config.gateways - 1 > 65_535:
        raise ConfigError(f"front_tcp_port: expected room for {config.gateways} ports, got {config.front_tcp_port}")
