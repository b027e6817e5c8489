"""`supervisor tenants list | set | remove`: what the tenants of a server may use, and how they stand beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from messages.outcomes import ExitCode
from supervisor.access.server_flag import not_written, of_server, same_server, tell_if_without_keys
from supervisor.foreign.foreign_names import GroupWithHints
from supervisor.operator.command_line import fail

_NO_LIMIT = "0: any number."


@click.group(cls=GroupWithHints, short_help="Weights, priorities and limits of tenants.")
def tenants() -> None:
    """Tenants of a server that was started with --api-keys. It need not run; one that runs follows within a second.

    What is set here wins over the tables [tenants.NAME] of the configuration, whole tenant by whole tenant. The tenant
    "default" stands for all tenants without a policy of their own.

    \b
    Exit status:
      0  done
      2  an argument or the file of tenants cannot be used
    """


@tenants.command("list", short_help="What was set here.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole policy of each tenant as JSON.")
@of_server
def show(port: int, state_dir: Path | None, as_json: bool) -> None:
    """Print a line for each tenant that has a policy here. Those of the configuration are not shown."""
    import msgspec

    from messages.access.tenant_file import read_tenants
    from messages.access.tenant_policy import LimitName, TenantPolicy
    from messages.errors import ConfigError
    from supervisor.tables.table import table_text, terminal_width

    try:
        found = read_tenants(_file(port, state_dir))
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    if as_json:
        return click.echo(msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=2))
    if not found:
        click.echo("No tenant was set here; GET /v1/tenants also shows those of the configuration.", err=True)
    names = TenantPolicy.__struct_fields__
    limits = set(LimitName)
    rows = [
        (tenant, *(_cell(getattr(policy, name), is_limit=name in limits) for name in names))
        for tenant, policy in sorted(found.items())
    ]
    click.echo(table_text(("tenant", *names), rows, terminal_width()))


@tenants.command("set", short_help="The whole policy of a tenant.")
@click.argument("tenant")
@click.option("--weight", type=float, help="Its share beside other tenants; 1 if not given.")
@click.option("--priority", type=int, help="Of its requests, the smaller number first; not given: what clients ask for.")
@click.option("--page-share", type=float, help="The part of a replica's pages that it may hold; 1 if not given.")
@click.option("--cache-share", type=float, help="The part that its cached prefixes may take while others need pages; 1.")
@click.option("--requests-per-min", type=int, help=_NO_LIMIT)
@click.option("--tokens-per-min", type=int, help=f"Of prompts and answers. {_NO_LIMIT}")
@click.option("--max-sequences", type=int, help=f"Accepted at a time. {_NO_LIMIT}")
@click.option("--tokens-per-day", type=int, help=f"From midnight to midnight, UTC. {_NO_LIMIT}")
@of_server
def put(port: int, state_dir: Path | None, tenant: str, **given: float | None) -> None:
    """Set the policy of TENANT, and print it. What is not given gets its default, also where it was set before."""
    import msgspec

    from messages.access.tenant_policy import TenantPolicy
    from supervisor.config.tenant_keys import without_key
    from supervisor.config.tenant_tables import tenant_errors

    table = {name: value for name, value in given.items() if value is not None}
    if errors := list(tenant_errors({"tenants": {tenant: table}})):
        fail(ExitCode.UNUSABLE, "; ".join(errors))
    policy = msgspec.convert(table, TenantPolicy)
    before: dict[str, Any] = {}

    def change(found: Any) -> Any:
        before.update(msgspec.to_builtins(found[tenant]) if tenant in found else {})
        return {**found, tenant: policy}

    _changed(port, state_dir, change)
    _note(port, state_dir, "tenants set", {"tenant": tenant, **table})
    click.echo(f"{tenant}: {_policy_text(policy)}")
    if ended := [f"{name} {_cell(value)}" for name, value in before.items() if name not in msgspec.to_builtins(policy)]:
        click.echo(f"Not given, so no longer set: {', '.join(ended)}", err=True)
    if without_key([tenant], _file(port, state_dir).parent):
        add = f"supervisor keys add --tenant {tenant}{same_server(port, state_dir)}"
        click.echo(f"No key belongs to {tenant} yet: {add}", err=True)
    tell_if_without_keys(port, state_dir)


@tenants.command(short_help="Forget what was set here.")
@click.argument("tenant")
@of_server
def remove(port: int, state_dir: Path | None, tenant: str) -> None:
    """Forget the policy of TENANT that was set here. That of the configuration counts again, or that of "default"."""
    was_set = list[str]()

    def change(found: Any) -> Any:
        was_set.extend(found)
        return {name: policy for name, policy in found.items() if name != tenant}

    _changed(port, state_dir, change)
    if tenant not in was_set:
        fail(ExitCode.UNUSABLE, f"tenant: expected one that was set here, got {tenant}; supervisor tenants list shows them")
    _note(port, state_dir, "tenants remove", {"tenant": tenant})
    click.echo(f"the policy of {tenant} is removed; its keys still count (supervisor keys list{same_server(port, state_dir)})")


def _changed(port: int, state_dir: Path | None, change: Callable[[Any], Any]) -> None:
    from messages.access.tenant_file import change_tenants
    from messages.errors import ConfigError

    path = _file(port, state_dir)
    try:
        change_tenants(path, change)
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    except OSError as error:
        fail(ExitCode.UNUSABLE, not_written(path, error))


def _file(port: int, state_dir: Path | None) -> Path:
    from messages.access.tenant_file import TENANT_FILE
    from supervisor.access.place import state_dir_for

    return state_dir_for(port, state_dir) / TENANT_FILE


def _note(port: int, state_dir: Path | None, action: str, asked: dict[str, Any]) -> None:
    """Write a line into the audit log beside the tenants."""
    from messages.access.audit_log import AUDIT_FILE
    from supervisor.audit.command_audit import write_command

    write_command(_file(port, state_dir).with_name(AUDIT_FILE), action, **asked)


def _policy_text(policy: Any) -> str:
    """The whole policy in a line: what is no default, and that all else is."""
    import msgspec

    parts = [f"{name} {_cell(value)}" for name, value in msgspec.to_builtins(policy).items()]
    return ", ".join([*parts, "all else by default"])


def _cell(value: float | None, *, is_limit: bool = False) -> str:
    """A value as text. A limit of 0 is none; as a number it would be read as "nothing is allowed"."""
    if value is None or (is_limit and value == 0):
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
