"""The same server with the settings that its configuration gives now: what may change while it serves, and what may not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from messages.access.tenant_file import TENANT_FILE, TenantBook
from messages.access.tenant_policy import TenantPolicy
from messages.errors import ConfigError
from messages.ids import actor_name
from messages.log_file.rotated_file import LOG_FILE, LogFile
from supervisor.config.server_config import ServerConfig
from supervisor.directories.server import Server, StartInputs, as_json, with_descriptors
from supervisor.policy.child_spec import Group
from supervisor.start_facts import StartFacts
from supervisor.tree import build_tree

_ACCOUNTS = actor_name("accounts", 0)
_GPU_MONITOR = actor_name("gpu_monitor", 0)
_SECTIONS = (
    "supervisor", "gateway", "custodian", "gpu_monitor", "scheduler", "cache_directory", "speculation", "worker", "embedder"
)  # fmt: skip
_FREE = frozenset({*_SECTIONS, "tenants", "model_name", "max_length", "log_format", "log_level", "log_file_bytes"})
_GIVEN_OR_NOT = ("tls_cert", "tls_client_ca")  # of gateways: other files may be named, but clients must go on as before
# they decide the tokens, or where the model fits
_FIXED_OF_WORKER = ("dtype", "kv_dtype", "quantization", "load_format", "deterministic", "shared_weights")


def reloaded(server: Server, config: ServerConfig, flags: dict[str, Any]) -> Server:
    """`server` with the settings of `config`, which `flags` and the file give now. The processes and their places are the same.

    Raises: ConfigError naming a key that cannot change while the server runs.
    """
    if server.origin is None:
        raise ConfigError(
            "run_dir: expected a server that has written down its settings, got one without them; stop and start it"
        )
    table = as_json(config)
    _refuse_fixed(server.origin.config, table)
    facts = StartFacts.from_builtins(server.origin.facts)
    groups = _with_present_numbers(server, _without_unknown(server, build_tree(config, facts)))
    if lacks_accounts(server) and any(policy.is_limited for policy in _policies(config, facts)):
        raise ConfigError(
            "tenants: expected none with limits, because this server was started by a release that does not count what tenants"
            " use; stop and start the server"
        )
    if [group.title for group in groups] != [group.title for group in server.groups]:
        raise ConfigError("configuration: expected the same processes as now, got others; stop and start the server")
    return replace(
        server,
        groups=groups,
        settings=config.supervisor,
        model_name=config.model_name or facts.model_name,
        log_format=config.log_format,
        log_level=server.log_level if config.log_level == "auto" else config.log_level,
        log_file=LogFile(str(facts.state_dir / LOG_FILE), config.log_file_bytes),
        origin=StartInputs(flags, table, server.origin.facts),
    )


def lacks_accounts(server: Server) -> bool:
    """True if clients show API keys to a server that has no accounts: the last release has started it."""
    asks_keys = server.origin is not None and bool(server.origin.config.get("api_keys"))
    return asks_keys and _ACCOUNTS not in {group.title for group in server.groups}


def _without_unknown(server: Server, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups without the accounts and the GPU monitor, if the last release has started the server: no process can be added
    to one that runs."""
    missing = {_ACCOUNTS} if lacks_accounts(server) else set[str]()
    missing |= {_GPU_MONITOR} - {group.title for group in server.groups}
    return tuple(one for one in groups if one.title not in missing)


def _with_present_numbers(server: Server, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups with the numbers that descriptors have now: those of the facts are numbers of the first supervisor."""
    numbers = {**_numbers_in(groups), **_numbers_in(server.groups)}
    return tuple(with_descriptors(group, numbers) for group in groups)


def _numbers_in(groups: Iterable[Group]) -> dict[str, int]:
    return {name: number for group in groups for child in group.children for name, number in child.descriptors.items()}


def _policies(config: ServerConfig, facts: StartFacts) -> Iterable[TenantPolicy]:
    return TenantBook(config.tenants, facts.state_dir / TENANT_FILE).policies.values()


def _refuse_fixed(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that the keys that cannot change have their old values. Keys that only one of two releases knows are left out.

    Raises: ConfigError.
    """
    for key in before.keys() & now.keys() - _FREE:
        _refuse_other(key, before[key], now[key])
    for key in _GIVEN_OR_NOT:
        was, is_now = (bool(table.get("gateway", {}).get(key)) for table in (before, now))
        if was != is_now:
            expected, got = ("a file" if given else "none" for given in (was, is_now))
            raise ConfigError(f"gateway.{key}: expected {expected}, as the server runs, got {got}; stop and start the server")
    for key in _FIXED_OF_WORKER:
        both = before["worker"], now["worker"]
        if all(key in section for section in both):
            _refuse_other(f"worker.{key}", both[0][key], both[1][key])


def _refuse_other(key: str, before: Any, now: Any) -> None:
    if before != now:
        raise ConfigError(f"{key}: expected {before!r}, with which the server runs, got {now!r}; stop and start the server")
