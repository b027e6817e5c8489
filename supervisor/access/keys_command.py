"""`supervisor keys add | list | revoke | rotate`: who may use a server that was started with --api-keys; and `keys zeromq`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from messages.outcomes import ExitCode
from supervisor.access.server_flag import not_written, of_server, tell_if_without_keys
from supervisor.foreign.foreign_names import GroupWithHints
from supervisor.operator.command_line import SECONDS, fail

_ROLES = ("user", "admin", "metrics")


@click.group(cls=GroupWithHints, short_help="API keys of a server that asks for them.")
def keys() -> None:
    """API keys of a server that was started with --api-keys. It need not run; one that runs follows within a second.

    A key belongs to a tenant. Caches, kept answers and requests of one tenant are never shown to another.

    \b
    Exit status:
      0  done
      2  an argument or the file of keys cannot be used
    """


@keys.command(short_help="Make a key; it is shown once.")
@click.option("--tenant", required=True, help="Whose key it is: 1 to 64 letters, digits, dots, hyphens or underscores.")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default="user",
    show_default=True,
    help="metrics: may only read metrics, of all tenants; admin: may also reset caches, set tenants, drain the server and"
    " cordon replicas.",
)
@of_server
def add(port: int, state_dir: Path | None, tenant: str, role: str) -> None:
    """Make a key and print it. Only its digest is kept, so it cannot be shown again."""
    from messages.access.api_key import Role
    from supervisor.access.key_changes import with_new

    asked = {"tenant": tenant, "role": role}
    _made(port, state_dir, "keys add", asked, lambda found, now_s: with_new(found, tenant, Role(role), now_s))


@keys.command("list", short_help="The keys, without their secrets.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON, with times as Unix times in seconds.")
@of_server
def show(port: int, state_dir: Path | None, as_json: bool) -> None:
    """Print a line for each key: its id, tenant, role, when it was made, and when it ends or has ended."""
    from messages.access.key_file import read_keys
    from messages.errors import ConfigError
    from supervisor.tables.table import table_text, terminal_width

    try:
        found = read_keys(_file(port, state_dir))
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    if as_json:
        names = ("id", "tenant", "role", "created_s", "ends_s")
        return click.echo(json.dumps([{name: getattr(one, name) for name in names} for one in found], indent=2))
    rows = [(one.id, one.tenant, one.role.value, _day(one.created_s), _end(one.ends_s)) for one in found]
    click.echo(table_text(("id", "tenant", "role", "made", "ends"), rows, terminal_width()))


@keys.command(short_help="End a key.")
@click.argument("key_id")
@of_server
def revoke(port: int, state_dir: Path | None, key_id: str) -> None:
    """End the key with this id, or this key: its id is a part of it. Requests that were accepted go on."""
    from supervisor.access.key_changes import id_given, with_ended

    key_id = id_given(key_id)
    _changed(port, state_dir, lambda found, now_s: with_ended(found, key_id, now_s))
    _note(port, state_dir, "keys revoke", {"key": key_id})
    click.echo(f"{key_id} is revoked")


@keys.command(short_help="A new key in place of an old one.")
@click.argument("key_id")
@click.option("--grace-s", type=SECONDS, default=0.0, show_default=True, help="The old key may be used for this time.")
@of_server
def rotate(port: int, state_dir: Path | None, key_id: str, grace_s: float) -> None:
    """Make a key of the same tenant and role, print it, and end the old one: at once, or after --grace-s.

    KEY_ID is the id of the old key, or that whole key."""
    from supervisor.access.key_changes import id_given, with_rotated

    key_id = id_given(key_id)
    asked = {"key": key_id, "grace_s": grace_s}
    _made(port, state_dir, "keys rotate", asked, lambda found, now_s: with_rotated(found, key_id, now_s, grace_s))
    if not grace_s:
        click.echo(
            f"{key_id} has ended: its clients get 401. --grace-s SECONDS lets them use an old key for so long.", err=True
        )


@keys.command("zeromq", short_help="The public key for ZeroMQ over TCP.")
@of_server
def show_zeromq(port: int, state_dir: Path | None) -> None:
    """Print the public key with which clients know a server that encrypts ZeroMQ over TCP: Client(..., server_key=KEY).

    It is no secret, but must reach the clients unchanged. It stays the same while zeromq-key.json is in the state directory.
    """
    from messages.errors import ConfigError
    from supervisor.access.server_keys import public_key_in

    try:
        click.echo(public_key_in(_file(port, state_dir).parent))
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))


def _made(
    port: int, state_dir: Path | None, action: str, asked: dict[str, Any], make: Callable[[Any, float], tuple[str, Any]]
) -> None:
    """Make a key and print it on standard output, with nothing beside it. `action`, `asked`: for the audit log."""
    from messages.access.api_key import key_id_of

    texts = []

    def change(found: Any, now_s: float) -> Any:
        text, after = make(found, now_s)
        texts.append(text)
        return after

    _changed(port, state_dir, change)
    _note(port, state_dir, action, {**asked, "new_key": key_id_of(texts[0])})
    click.echo(texts[0])
    if sys.stdout.isatty():
        click.echo("It is not shown again. Clients send it as `Authorization: Bearer KEY`.", err=True)
    tell_if_without_keys(port, state_dir)


def _changed(port: int, state_dir: Path | None, change: Callable[[Any, float], Any]) -> None:
    from messages.access.key_file import change_keys
    from messages.errors import ConfigError

    path, now_s = _file(port, state_dir), time.time()
    try:
        change_keys(path, lambda found: change(found, now_s))
    except (ConfigError, ValueError) as error:
        fail(ExitCode.UNUSABLE, str(error))
    except OSError as error:
        fail(ExitCode.UNUSABLE, not_written(path, error))


def _note(port: int, state_dir: Path | None, action: str, asked: dict[str, Any]) -> None:
    """Write a line into the audit log beside the keys."""
    from messages.access.audit_log import AUDIT_FILE
    from supervisor.audit.command_audit import write_command

    write_command(_file(port, state_dir).with_name(AUDIT_FILE), action, **asked)


def _file(port: int, state_dir: Path | None) -> Path:
    from messages.access.key_file import KEY_FILE
    from supervisor.access.place import state_dir_for

    return state_dir_for(port, state_dir) / KEY_FILE


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at_s))


def _end(ends_s: float | None) -> str:
    return "never" if ends_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(ends_s))
