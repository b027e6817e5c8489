"""A configuration file with every key: its meaning, and its default behind a comment sign."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec

from messages.access.tenant_policy import TenantPolicy
from supervisor.config.comments import comments_of
from supervisor.config.server_config import ServerConfig, described
from supervisor.config.tenant_tables import TENANTS

_WIDTH = 120
_HEAD = """\
# The configuration of a Tardigrade server, for supervisor start --config FILE (or $TARDIGRADE_CONFIG).
# Every key is here with its default. Take the "# " away from a key that you change.
# Sizes may be texts such as "8GiB", times such as "90s". supervisor check-config FILE says what is wrong.
"""


def sample_text() -> str:
    """The file as TOML. It can be used as it is, and changes nothing."""
    config = ServerConfig()
    table = described(config)
    sections = {name for name, value in table.items() if isinstance(value, dict) and name != TENANTS}
    lines = [_HEAD, *_keys(config, [name for name in table if name not in sections and name != TENANTS])]
    for name in table:
        if name in sections:
            lines += _section(name, getattr(config, name), list(table[name]))
    return "\n".join([*lines, *_tenants()]) + "\n"


def toml(value: Any) -> str:
    """A value as TOML writes it. None, which TOML has not, is an empty text."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return "" if value is None else json.dumps(value)


def _section(name: str, section: msgspec.Struct, keys: list[str]) -> list[str]:
    said = inspect.cleandoc(type(section).__doc__ or "").partition(".")[0].replace("\n", " ")
    return [f"# {'-' * 8} {said}", f"[{name}]", "", *_keys(section, keys)]


def _keys(section: msgspec.Struct, keys: list[str]) -> Iterator[str]:
    comments = comments_of(type(section))
    for key in keys:
        yield from (f"# {line}" for line in textwrap.wrap(comments[key], _WIDTH))
        value = getattr(section, key)
        yield f"# {key} = {toml(value)}" if value is not None else f"# {key} =           # not set"
        yield ""


def _tenants() -> list[str]:
    """The keys of one tenant, all behind comment signs: a tenant that is named here exists."""
    head = [
        f"# {'-' * 8} One table for each tenant; default: of those without a table. They need api_keys = true",
        "# [tenants.default]",
        "",
    ]
    return [*head, *_keys(TenantPolicy(), list(TenantPolicy.__struct_fields__))]
