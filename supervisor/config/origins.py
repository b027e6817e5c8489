"""From where each value of a configuration comes: the file, a flag of the command line, or the defaults. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from supervisor.config.config_file import Table


class Setting(msgspec.Struct, frozen=True):
    """One key with its value and where it comes from."""

    key: str
    value: object
    origin: str


def settings_of(effective: Table, sources: Iterable[tuple[str, Table]]) -> list[Setting]:
    """Every key of a whole configuration. `sources`: the name and the table of each, those that win last. A section that a
    source names without a key in it, as the sample does, says nothing about its keys."""
    found: dict[str, str] = {}
    for origin, table in sources:
        found |= {key: origin for key, value in _flat(table) if "." in key or value != {}}
    return [Setting(key, value, _origin_of(key, found)) for key, value in _flat(effective)]


def _origin_of(key: str, found: dict[str, str]) -> str:
    """A table that was given as a whole counts for the keys in it."""
    above = [key.rsplit(".", depth)[0] for depth in range(key.count(".") + 1)]
    return next((found[one] for one in above if one in found), "default")


def _flat(table: Table, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
