"""Reads configuration files and flags as nested tables, merges them, and converts them to structs, with helpful errors."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from messages.errors import ConfigError
from supervisor.config.units import explained, without_units
from supervisor.foreign.values import value_hint

Table = dict[str, Any]

_BACKQUOTED = re.compile(r"`([^`]*)`")
_PATH_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")  # of "gateway.allowed_hosts[0]": a key, or the number of an item
_PLAIN_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}


def read_table(path: Path) -> Table:
    """A TOML file as a table.

    Raises: ConfigError naming the file, and the line of a syntax error.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config: expected a file that can be read at {path}, got {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: expected TOML, got {_syntax_error(error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected TOML in UTF-8, got bytes that are not UTF-8") from None


def _syntax_error(error: tomllib.TOMLDecodeError) -> str:
    """The parser's text with the place first: "line 1, column 8: invalid value"."""
    what, _, where = str(error).rstrip(")").rpartition(" (at ")
    return f"{where}: {what[:1].lower()}{what[1:]}" if what else str(error)


def overlay(below: Table, above: Mapping[str, Any]) -> Table:
    """`below` with the values of `above` in it, table by table. Neither is changed."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = overlay(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def table_of(assignment: str) -> Table:
    """`section.key=value` as a nested table. The value is read as TOML; if that fails it is taken as text.

    Raises: ConfigError without a key or an equals sign.
    """
    path, equals, text = assignment.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigError(f"set: expected section.key=value, got {assignment!r}")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for key in reversed(keys):
        value = {key: value}
    return value


def convert(table: Table, into: type[Any], hidden: Collection[str] = ()) -> Any:
    """The table as a struct of the type `into`. `hidden`: paths of keys that no error proposes.

    Raises: ConfigError naming the full path of every key that is unknown (with the nearest known one) or has a wrong value.
    """
    refuse(errors_of(table, into, hidden))
    return msgspec.convert(without_units(table), into)


def errors_of(table: Table, into: type[Any], hidden: Collection[str] = ()) -> list[str]:
    """What `convert` would refuse: one text for each wrong key, beginning with its path."""
    table = without_units(table)
    proposals = [path for path in _paths(into) if path not in hidden]
    unknown = list(_unknown_keys(table, into, ""))
    errors = [_unknown_key(path, is_section, proposals) for path, is_section in unknown]
    for path, _ in unknown:
        table = _without(table, path)
    while (found := _first_error(table, into)) is not None:
        path, error = found
        errors.append(error)
        table = _without(table, path)
    return errors


def _first_error(table: Table, into: type[Any]) -> tuple[str, str] | None:
    """The path of the first wrong value, and its error; None if no value is wrong."""
    try:
        msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$.")
        path = at.rstrip("`")
        assert path, "every field has a default, so an error is in a value"
        return path, f"{path}: {_explained(text, path, table, into)}"
    return None


def refuse(errors: Sequence[str]) -> None:
    """Return if there are no errors; otherwise raise one error that lists them all, one a line.

    Raises: ConfigError.
    """
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise ConfigError(errors[0] if len(errors) == 1 else f"the configuration has {len(errors)} errors:{lines}")


def _without(table: Table, path: str) -> Table:
    """The table without the key at `path`, which may end in the place of an item: "gateway.allowed_hosts[0]"."""
    key, _, rest = path.partition("[")[0].partition(".")
    if not rest:
        return {name: value for name, value in table.items() if name != key}
    return {**table, key: _without(table[key], rest)} if isinstance(table.get(key), dict) else table


def _explained(text: str, path: str, table: Table, into: type[Any]) -> str:
    """The text of msgspec's error, completed by the allowed values of a Literal or enum, or by the description of a pattern,
    and by the value that came."""
    value: Any = table
    annotation: Any = into
    for key, index in _PATH_PART.findall(path):
        if index:
            value = value[int(index)] if isinstance(value, list) else None
            annotation = next(iter(get_args(annotation)), None)
            continue
        value = value.get(key) if isinstance(value, dict) else None
        section = _struct_type(annotation)
        annotation = get_type_hints(section, include_extras=True).get(key) if section is not None else None
    described = [one.description for one in getattr(annotation, "__metadata__", ()) if one.description]
    if described and "matching regex" in text:
        return f"expected {described[0]}, got {_shown(value)}"
    if choices := _choices_of(annotation):
        return f"expected one of {', '.join(choices)}, got {value!r}{value_hint(path, value)}"
    expected = _BACKQUOTED.sub(lambda match: _plain_type(match[1]), text.partition(", got")[0])
    if _struct_type(annotation) is not None:
        expected += f", as {path}.KEY=VALUE makes one"
    if expected.endswith("a list") and isinstance(value, str):
        expected += f" such as [{json.dumps(value)}]"
    if expected.endswith("a table") and isinstance(value, str):
        expected += " such as {key = 1}, as TOML writes it"
    return f"{explained(expected[:1].lower() + expected[1:], path)}, got {_shown(value)}"


def _plain_type(name: str) -> str:
    """The words for a type that msgspec's errors name: "a whole number" for "int | null"."""
    kinds = [kind for kind in name.split(" | ") if kind != "null"]
    return " or ".join(_PLAIN_TYPES.get(kind, kind) for kind in kinds)


def _shown(value: Any) -> str:
    """A value as TOML writes it, as far as an error needs it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else repr(value)


def _choices_of(annotation: Any) -> list[str]:
    """The values that a Literal, an enum, or a Literal or bool allows; empty for any other type."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        members: type[Enum] = annotation
        return [str(member.value) for member in members]
    parts = [["true", "false"] if part is bool else _choices_of(part) for part in get_args(annotation)]
    return [choice for part in parts for choice in part] if all(parts) else []


def _paths(into: type[Any]) -> Iterator[str]:
    """The paths of all keys, without those of the sections themselves."""
    for name, annotation in get_type_hints(into).items():
        section = _struct_type(annotation)
        yield from [name] if section is None else (f"{name}.{key}" for key in section.__struct_fields__)


_TABLES = ("tenants",)  # keys whose value is a table with names of the operator's own
_RENAMED = {"scheduler.order": "it is scheduler.policy now: priority is priority, arrival is fcfs"}
_OF_OTHER_MODELS = ("fallback",)  # sections with some keys of the main model's sections; the latter are meant


def _unknown_key(path: str, is_section: bool, known: Sequence[str]) -> str:
    """The error of a key that does not exist.

    It proposes the key of the same name in another section, or else the most similar key of the same section; without either it
    lists the known keys. `path`: of the unknown key. `is_section`: its value is a table. `known`: all keys that can be set.
    """
    if path in _RENAMED:
        return f"{path}: unknown key; {_RENAMED[path]}"
    section, _, key = path.rpartition(".")
    names = [name for at, _, name in (other.rpartition(".") for other in known) if at == section]
    sections = list(dict.fromkeys(other.partition(".")[0] for other in known if "." in other))
    tables = [*sections, *(name for name in names if name in _TABLES)]
    if is_section and not section:
        names = tables
    elsewhere = [] if is_section else [other for other in known if other.rpartition(".")[2] == key]
    elsewhere = [other for other in elsewhere if other.partition(".")[0] not in _OF_OTHER_MODELS] or elsewhere
    near = _nearest(key, names)
    proposal = elsewhere[0] if len(elsewhere) == 1 else f"{section}.{near}" if section and near else near
    if proposal:
        return f"{path}: unknown key; did you mean {proposal}?"
    others = f", and the keys of the sections {', '.join(sections)}" if not section and not is_section else ""
    return f"{path}: unknown key; known are {', '.join(names)}{others}"


def _nearest(key: str, known: Sequence[str]) -> str:
    """The known key that is most similar to `key`, as a whole or at its beginning; empty if none is similar enough."""

    def similarity(other: str) -> float:
        return max(difflib.SequenceMatcher(None, key, part).ratio() for part in (other, other[: len(key) + 1]))

    best = max(known, key=similarity)
    return best if similarity(best) >= 0.6 else ""


def _unknown_keys(table: Mapping[str, Any], into: type[Any], prefix: str) -> Iterator[tuple[str, bool]]:
    """The path of every key that `into` has no field for, and whether it has a table."""
    types_by_name = get_type_hints(into)
    for key, value in table.items():
        if key not in types_by_name:
            yield f"{prefix}{key}", isinstance(value, dict)
        elif isinstance(value, dict) and (section := _struct_type(types_by_name[key])) is not None:
            yield from _unknown_keys(value, section, f"{prefix}{key}.")


def _struct_type(annotation: Any) -> type[msgspec.Struct] | None:
    options = get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, msgspec.Struct)), None)
