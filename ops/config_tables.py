"""Draws the tables of docs/configuration.md: every key that an operator can set, from the structs of the configuration.

A key's meaning is the comment beside its field. Keys that the supervisor sets itself are left out.
"""

from __future__ import annotations

import inspect
import json
from enum import Enum
from typing import Any

import click
import msgspec

from messages.access.tenant_policy import TenantPolicy
from ops.api_tables import number, words_of
from supervisor.__main__ import start
from supervisor.config.comments import comments_of
from supervisor.config.server_config import ServerConfig, described
from supervisor.config.tenant_tables import TENANTS

_UNITS = {"_s": "seconds", "_bytes": "bytes", "_tokens": "tokens"}  # by the end of a key's name


def settings_tables() -> str:
    """One table for each section: key, type and range with its unit, default, flag, meaning."""
    config = ServerConfig()
    table = described(config)
    sections = {name: value for name, value in table.items() if isinstance(value, dict) and name != TENANTS}
    blocks = [_section("", config, [name for name in table if name not in sections])]
    blocks += [_section(name, getattr(config, name), list(keys)) for name, keys in sections.items()]
    return "\n\n".join([*blocks, _section(f"{TENANTS}.NAME", TenantPolicy(), list(TenantPolicy.__struct_fields__))])


def _section(name: str, section: msgspec.Struct, keys: list[str]) -> str:
    kind = type(section)
    comments, flags = comments_of(kind), _flags()
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    title = f"**`[{name}]`** {inspect.cleandoc(kind.__doc__ or '').partition('.')[0]}." if name else "**Above all sections**"
    lines = [title, "", "| key | value | default | flag | meaning |", "|---|---|---|---|---|"]
    for key in keys:
        words = words_of(msgspec.inspect.type_info(fields[key].type)) + _unit(key)
        flag = flags.get((name, key), "")
        cells = (f"`{key}`", words, _shown(getattr(section, key)), f"`{flag}`" if flag else "", comments[key])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _unit(key: str) -> str:
    return next((f", in {unit}" for end, unit in _UNITS.items() if key.endswith(end)), "")


def _shown(value: Any) -> str:
    """A default as TOML writes it."""
    if value is None:
        return "not set"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"`{number(value)}`"
    return f"`{json.dumps(value)}`"


def _flags() -> dict[tuple[str, str], str]:
    """The flag of `supervisor start` for each key that has one, by (section, key); the section is "" above all sections."""
    found: dict[tuple[str, str], str] = {}
    for option in start.params:
        assert isinstance(option, click.Option)
        section, dot, key = (option.name or "").partition("__")
        found[(section, key) if dot else ("", section)] = "/".join([option.opts[0], *option.secondary_opts])
    return found
