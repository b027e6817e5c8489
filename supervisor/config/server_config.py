"""The configuration of a server: one frozen struct, a section for each actor's own settings, checked as a whole.

Flags win over a TOML file, and the file wins over defaults. The only environment variables are TARDIGRADE_CONFIG, which names
the file, and those of OpenTelemetry. Unknown keys are refused. Keys that the supervisor sets itself (the model's folder, the
rank, sockets) are refused too, and the refusal names the key to use instead.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from actors.cache_directory.settings import DirectorySettings
from actors.custodian.settings import CustodianSettings
from actors.gateway.settings import GatewaySettings
from actors.gpu_monitor.settings import GpuMonitorSettings
from actors.scheduler.settings import SchedulerSettings
from actors.speculation.settings import SpeculationSettings
from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.settings import WorkerSettings
from messages.access.tenant_policy import TenantName, TenantPolicy
from messages.ids import REPLICAS_OF_A_MODEL
from messages.run_dir import DEFAULT_PORT, MAX_PORT
from supervisor.config.config_file import Table, convert, errors_of, overlay, read_table, refuse
from supervisor.config.fallback_settings import FallbackSettings
from supervisor.config.observability_settings import ObservabilitySettings, observability_errors
from supervisor.config.size_settings import size_errors
from supervisor.config.tenant_tables import TENANTS, tenant_errors
from supervisor.config.text_settings import encoding_errors, text_errors, tls_errors

CONFIG_VARIABLE = "TARDIGRADE_CONFIG"
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_INDEX_PACKAGE = "usearch"

_Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=MAX_PORT)]
_Small = Annotated[int, msgspec.Meta(ge=1, le=1024)]

_DERIVED = {  # (section, key) that the supervisor sets -> the key from which it is derived
    ("worker", "model_folder"): "model",
    ("worker", "model_digests"): "model",
    ("worker", "device"): "gpus",
    ("worker", "device_index"): "gpus",
    ("worker", "rank"): "tp",
    ("worker", "tp"): "tp",
    ("worker", "pp"): "pp",
    ("worker", "cpu_ranks"): "tp and replicas",
    ("worker", "max_length"): "max_length",
    ("worker", "vault"): "vault",
    ("worker", "standby"): "standby",
    ("scheduler", "tp"): "tp",
    ("scheduler", "pp"): "pp",
    ("scheduler", "speculation"): "speculate",
    ("scheduler", "vault"): "vault",
    ("scheduler", "tells_directory"): "replicas",
    ("scheduler", "follows_load"): "worker.kv_least_bytes",
    ("scheduler", "host_follows_load"): "worker.host_cache_least_bytes",
    ("gateway", "model_folder"): "model",
    ("gateway", "model_digests"): "model",
    ("gateway", "model_name"): "model_name",
    ("gateway", "max_length"): "max_length",
    ("gateway", "numerics"): "worker.dtype and tp",
    ("gateway", "device"): "gpus",
    ("gateway", "other_models"): "fallback_model",
    ("gateway", "embedding_device"): "embedder.device",
    ("gateway", "deterministic"): "worker.deterministic",
    **{("gateway", f"embedding_{key}"): "embedding_model" for key in ("model", "folder", "length", "dimensions", "normalized")},
    **{("gateway", f"embedding_{key}"): "embedding_model" for key in ("prompts", "default_prompt", "digests")},
    ("gateway", "zeromq_endpoint"): "run_dir",
    ("gateway", "zeromq_tcp_endpoint"): "zeromq_port",
    ("gateway", "zeromq_key_file"): "zeromq_curve",
    ("gateway", "audit_file"): "audit_log",
    ("gateway", "traces"): "observability.traces",
    ("gateway", "http_sockets"): "gateways",
    ("gateway", "have_gateways_changed"): "gateways",
    ("gateway", "journal_path"): "state_dir",
    ("gateway", "keys_file"): "api_keys",
    ("gateway", "tenants"): "tenants",
    ("gateway", "tenants_file"): "state_dir",
    ("gateway", "gateways"): "gateways",
    ("gateway", "schedulers"): "replicas",
    ("gateway", "names_holders"): "worker.exchange_bytes",
    ("gateway", "custodian_socket"): "run_dir",
    ("custodian", "socket_path"): "run_dir",
    ("embedder", "model_folder"): "embedding_model",
    ("embedder", "model_digests"): "embedding_model",
    ("cache_directory", "keeps_similar"): "gateway.answer_cache",
    ("cache_directory", "keeps_answers"): "gateway.answer_cache",
    ("cache_directory", "answer_ttl_s"): "gateway.answer_cache_ttl_s",
    ("cache_directory", "answers_file"): "state_dir",
}


class SupervisorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Deadlines of the children, and how often they may be restarted."""

    beat_s: _Seconds = 0.5  # between two Progress messages of a child
    hello_s: _Seconds = 60.0  # from the start of a process to its Hello
    ready_s: _Seconds = 60.0  # from Hello to Ready
    worker_ready_s: _Seconds = 900.0  # the same for a worker; each Loading message restarts the time
    frozen_s: _Seconds = 1.5  # a child that sends no Progress for this time is killed; only its own time counts
    frozen_worker_s: _Seconds = 1.5  # the same for a worker: its step thread may keep the interpreter's lock
    suspended_s: _Seconds = 1.2  # a child that is stopped from outside (SIGSTOP, a debugger) for this time is killed
    step_s: _Seconds = 60.0  # longest time of a step on a GPU; then its gang is restarted
    first_step_s: _Seconds = 600.0  # the same for the first step, which may compile kernels
    cpu_step_s: _Seconds = 900.0  # the same for a step on CPU cores
    drain_s: _Seconds = 30.0  # time for requests to finish when the server stops
    stop_s: _Seconds = 10.0  # time for each group of children to exit after that
    orphan_s: _Seconds = 60.0  # children of a dead supervisor serve for this time; if no other adopts them, they end
    standby_pause_s: _Seconds = 1.0  # from a promotion to the start of the next standby, which slows steps; on CPUs 0.3 at most
    actor_restarts: Annotated[int, msgspec.Meta(ge=0)] = 300  # restarts of one actor that are allowed within actor_window_s
    actor_window_s: _Seconds = 60.0  # for how long a restart of an actor counts
    gang_restarts: Annotated[int, msgspec.Meta(ge=0)] = 300  # restarts of one gang that are allowed within gang_window_s
    gang_window_s: _Seconds = 300.0  # for how long a restart of a gang counts
    start_attempts: _Small = 3  # attempts of the first start; those that are killed from outside do not count
    restart_attempts: _Small = 10  # attempts in a row to bring back a group that has been ready before
    spares: bool = True  # a warm process for each child: restarts take milliseconds; memory 2 MB each, of ranks up to 230


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that an operator can set."""

    model: str = ""  # a folder, a GGUF file, a name on the hub, "hash-chain"; empty: the packaged small model
    model_name: str = ""  # what clients see; empty: the model's own name
    # serves embeddings beside the model: "all-MiniLM-L6-v2", which a package ships, or a folder, a GGUF file or a name on the
    # hub, of an encoder of the BERT family or of a decoder; empty: no embeddings
    embedding_model: str = ""
    # a smaller model on CPU cores, which answers new requests while no replica of the model is ready; named as the model is;
    # empty: none
    fallback_model: str = ""
    gpus: Annotated[int, msgspec.Meta(ge=0)] | None = None  # GPUs to use; not set: all of them; 0: CPU cores
    tp: Annotated[int, msgspec.Meta(ge=0)] = (
        0  # ranks of one replica; 0: as few as hold the model, or, with both gpus and replicas, as many as there is room for
    )
    pp: _Small = 1  # stages of one replica, each of tp ranks with a part of the layers
    replicas: Annotated[int, msgspec.Meta(ge=0, lt=REPLICAS_OF_A_MODEL)] = 0  # copies of the model; 0: as many as fit
    gateways: _Small = 1  # processes that accept requests
    host: str = "127.0.0.1"  # address that HTTP listens on
    port: _Port = DEFAULT_PORT  # of HTTP; 0: any free one
    api_keys: bool = False  # clients must show a key; `supervisor keys add` makes one
    # weight, priority and limits of the tenants to which keys belong, by name; "default": of those without an entry
    tenants: dict[TenantName, TenantPolicy] = {}
    insecure: bool = False  # without API keys or without TLS, HTTP may listen where other machines can reach it
    audit_log: bool = True  # calls for which the role admin is needed, and commands of operators, have lines in audit.log
    zeromq_port: _Port = 0  # port for ZeroMQ clients; 0: no TCP, Unix sockets only
    zeromq_host: str = "127.0.0.1"  # where ZeroMQ clients connect over TCP: an address of this host
    # ZeroMQ over TCP is encrypted, and clients must know the server's public key; not set: unless zeromq_host is 127.0.0.1, ::1
    # or localhost
    zeromq_curve: bool | None = None
    max_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens of one sequence; 0: the model's context length
    speculate: bool = True  # speculative decoding with drafts from the text so far
    # KV memory and weights outlive gangs and schedulers, which then load and compute little again; not set: on GPUs, with a
    # standby, and with worker.exchange_bytes
    vault: bool | None = None
    # a second gang of each replica, ready to take over, and a vault; not set: where there is room for it
    standby: bool | None = None
    hold_connections: bool = True  # HTTP connections go on when their gateway dies; a custodian process holds them
    run_dir: str = ""  # sockets and state of the processes; empty: a private directory for this port
    state_dir: str = ""  # journals; empty: run_dir if that is set, else one for this port that survives a reboot
    log_format: Literal["console", "json"] = "console"  # lines for people, or one JSON object a line
    log_level: Literal["auto", "debug", "info", "warning", "error"] = "auto"  # auto: warning on a terminal, else info
    # most that server.log in state_dir takes, with the older ones; `supervisor logs` shows it; 0: there is none
    log_file_bytes: Annotated[int, msgspec.Meta(ge=0)] = 64 << 20
    supervisor: SupervisorSettings = SupervisorSettings()
    gateway: GatewaySettings = GatewaySettings()
    custodian: CustodianSettings = CustodianSettings()
    gpu_monitor: GpuMonitorSettings = GpuMonitorSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    cache_directory: DirectorySettings = DirectorySettings()
    speculation: SpeculationSettings = SpeculationSettings()
    worker: WorkerSettings = WorkerSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    fallback: FallbackSettings = FallbackSettings()
    observability: ObservabilitySettings = ObservabilitySettings()

    @property
    def holds_connections(self) -> bool:
        """True if a custodian holds the connections. A TLS session cannot be held: its keys end with its gateway."""
        return self.hold_connections and not self.gateway.tls_cert

    @property
    def has_curve(self) -> bool:
        """True if ZeroMQ over TCP is encrypted."""
        return self.zeromq_host not in LOOPBACK_HOSTS if self.zeromq_curve is None else self.zeromq_curve

    @property
    def asks_vault(self) -> bool | None:
        """`vault`, but where the operator has not said it, pages that replicas share need one: it gives memory to others."""
        return True if self.vault is None and self.worker.exchange_bytes else self.vault


def load_config(path: str | None, flags: Iterable[Table] = ()) -> ServerConfig:
    """The checked configuration from the file at `path` and from `flags`; later flags win. With `path` None the file is
    the one that TARDIGRADE_CONFIG names, if any.

    Raises: ConfigError naming every wrong key, what was expected and what came.
    """
    chosen = path or os.environ.get(CONFIG_VARIABLE)
    table = read_table(Path(chosen)) if chosen else {}
    for flag in flags:
        table = overlay(table, flag)
    hidden = {f"{section}.{key}" for section, key in _DERIVED}
    others = {key: value for key, value in table.items() if key != TENANTS}
    wrong = [*_derived_keys(table), *tenant_errors(table), *encoding_errors(others)]
    refuse([*wrong, *errors_of(others, ServerConfig, hidden)])
    config = convert(table, ServerConfig, hidden)
    traces = observability_errors(config.observability, os.environ)
    refuse([*_conflicts(config), *_door_errors(config), *text_errors(config.gateway), *size_errors(config.worker), *traces])
    return config


def described(config: ServerConfig) -> Table:
    """The configuration as a table that an operator could have written: without the keys that the supervisor sets."""
    table = msgspec.to_builtins(config)
    for section, key in _DERIVED:
        del table[section][key]
    return table


def changed(config: ServerConfig) -> Table:
    """The values that are not the defaults, by the paths of their keys."""
    found: Table = {}
    default = described(ServerConfig())
    for name, value in described(config).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": item for key, item in value.items() if item != default[name].get(key)}
        elif value != default[name]:
            found[name] = value
    return found


def _derived_keys(table: Table) -> Iterator[str]:
    """The errors of keys that the supervisor sets itself."""
    for (section, key), instead in _DERIVED.items():
        found: Any = table.get(section)
        if isinstance(found, dict) and key in found:
            yield f"{section}.{key}: the supervisor sets this key; set {instead} instead"


def _conflicts(config: ServerConfig) -> Iterator[str]:
    """The errors that depend on several keys."""
    if config.supervisor.frozen_s < 3 * config.supervisor.beat_s:
        yield (
            f"supervisor.frozen_s: expected at least three times supervisor.beat_s ({3 * config.supervisor.beat_s:g} s),"
            f" got {config.supervisor.frozen_s:g}"
        )
    if config.scheduler.unacked_messages < 2 * config.gateway.ack_messages:
        yield (
            f"scheduler.unacked_messages: expected at least twice gateway.ack_messages ({2 * config.gateway.ack_messages}),"
            f" got {config.scheduler.unacked_messages}"
        )
    if config.gateway.answer_cache == "semantic":
        yield from _semantic_errors(config)
    if config.worker.exchange_bytes and config.vault is False and not config.standby:
        yield "worker.exchange_bytes: expected 0 without a vault, which gives the memory to other replicas; set vault"


def _door_errors(config: ServerConfig) -> Iterator[str]:
    """The errors of settings about who may reach the server, and how."""
    port, host, gateway = config.zeromq_port, config.zeromq_host, config.gateway
    if config.api_keys and gateway.caller_header:
        yield "gateway.caller_header: expected none beside api_keys, because the key of a call names its caller"
    if config.tenants and not config.api_keys:
        yield "tenants: expected none without api_keys, because the key of a call names its tenant"
    if config.port and config.port == port:
        yield f"zeromq_port: expected another port than port, got {config.port} for both"
    if config.gateways > 1 and port + config.gateways - 1 > MAX_PORT:
        yield f"zeromq_port: expected room for {config.gateways} ports, got {port}"
    if not port and (host not in LOOPBACK_HOSTS or config.zeromq_curve):
        beside = f"zeromq_host {host}" if host not in LOOPBACK_HOSTS else "zeromq_curve"
        yield f"zeromq_port: expected a port beside {beside}, such as 5555, got 0, with which nothing listens over TCP"
    if port and host not in LOOPBACK_HOSTS and not config.has_curve:
        yield f"zeromq_curve: expected true with zeromq_host {host}: keys and answers could be read on the way, got false"
    if port and host not in LOOPBACK_HOSTS and not (config.api_keys or config.insecure):
        yield (
            f"zeromq_host: expected 127.0.0.1, got {host}: everybody who reaches it and knows the server's public key could use"
            " the server. Ask for keys with --api-keys, or say --insecure"
        )
    if bool(gateway.tls_cert) != bool(gateway.tls_key):
        given, missing = ("tls_cert", "tls_key") if gateway.tls_cert else ("tls_key", "tls_cert")
        yield f"gateway.{missing}: expected a file beside gateway.{given}, got none"
    elif gateway.tls_client_ca and not gateway.tls_cert:
        yield "gateway.tls_client_ca: expected gateway.tls_cert and gateway.tls_key beside it, got none"
    elif gateway.tls_cert:
        yield from tls_errors(gateway)


def _semantic_errors(config: ServerConfig) -> Iterator[str]:
    """What is missing for answers to similar questions."""
    if not config.embedding_model:
        yield 'gateway.answer_cache: expected an embedding_model beside "semantic" (all-MiniLM-L6-v2, for example), got none'
    if importlib.util.find_spec(_INDEX_PACKAGE) is None:
        install = "pip install 'tardigrade-serve[semantic]'"
        yield f'gateway.answer_cache: expected the package {_INDEX_PACKAGE} for "semantic" ({install}), got none'
