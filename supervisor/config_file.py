"""Reads configuration files and flags as nested tables, merges them, and converts them to structs, with helpful errors."""

from __future__ import annotations

import difflib
import re
import tomllib
import types
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from messages.errors import ConfigError

Table = dict[str, Any]

_BACKQUOTED = re.compile(r"`([^`]*)`")
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
    """The table as a struct of the type `into`. hidden: paths of keys that no error proposes.

    Raises: ConfigError naming the full path of a key that is unknown (with the nearest known one) or has a wrong value.
    """
    for path, keys in _unknown_keys(table, into, ""):
        section = path.rpartition(".")[0]
        known = [key for key in keys if (f"{section}.{key}" if section else key) not in hidden]
        near = _section_key(path, into, hidden) or _nearest(path.rpartition(".")[2], known)
        raise ConfigError(f"{path}: unknown key; " + (f"did you mean {near}?" if near else f"known are {', '.join(known)}"))
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$.")
        path = at.rstrip("`")
        raise ConfigError(f"{path or 'configuration'}: {_explained(text, path, table, into)}") from None


def _explained(text: str, path: str, table: Table, into: type[Any]) -> str:
    """The text of msgspec's error, completed by the allowed values of a Literal or enum and by the value that came."""
    value: Any = table
    annotation: Any = into
    for key in path.split(".") if path else ():
        value = value.get(key) if isinstance(value, dict) else None
        section = _struct_type(annotation)
        annotation = get_type_hints(section).get(key) if section is not None else None
    choices = get_args(annotation) if get_origin(annotation) is Literal else _values_of(annotation)
    if choices:
        return f"expected one of {', '.join(map(str, choices))}, got {value!r}"
    expected = _BACKQUOTED.sub(lambda match: _plain_type(match[1]), text.partition(", got")[0])
    return f"{expected[:1].lower()}{expected[1:]}, got {_shown(value)}"


def _plain_type(name: str) -> str:
    """A type of msgspec's errors in words: "int | null" is "a whole number"."""
    kinds = [kind for kind in name.split(" | ") if kind != "null"]
    return " or ".join(_PLAIN_TYPES.get(kind, kind) for kind in kinds)


def _shown(value: Any) -> str:
    """A value as TOML writes it, as far as an error needs it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else repr(value)


def _values_of(annotation: Any) -> list[Any]:
    """The values of an enum; empty for any other type."""
    if not (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return []
    members: type[Enum] = annotation
    return [member.value for member in members]


def _section_key(path: str, into: type[Any], hidden: Collection[str]) -> str:
    """`section.key` for a key that was given without its section; empty when no section, or more than one, has it."""
    if "." in path:
        return ""
    sections = {name: _struct_type(annotation) for name, annotation in get_type_hints(into).items()}
    having = [name for name, section in sections.items() if section is not None and path in section.__struct_fields__]
    found = [name for name in having if f"{name}.{path}" not in hidden]
    return f"{found[0]}.{path}" if len(found) == 1 else ""


def _nearest(key: str, known: list[str]) -> str:
    """The known key that is most similar to `key`, as a whole or at its beginning; empty if none is similar enough."""

    def similarity(other: str) -> float:
        return max(difflib.SequenceMatcher(None, key, part).ratio() for part in (other, other[: len(key) + 1]))

    best = max(known, key=similarity)
    return best if similarity(best) >= 0.6 else ""


def _unknown_keys(table: Mapping[str, Any], into: type[Any], prefix: str) -> Iterator[tuple[str, list[str]]]:
    """(path, known keys of the same section and kind: values or tables) of every key that `into` has no field for."""
    types_by_name = get_type_hints(into)
    for key, value in table.items():
        if key not in types_by_name:
            sections = [name for name, kind in types_by_name.items() if _struct_type(kind) is not None]
            values = [name for name in types_by_name if name not in sections]
            yield f"{prefix}{key}", sections if sections and isinstance(value, dict) else values
        elif isinstance(value, dict) and (section := _struct_type(types_by_name[key])) is not None:
            yield from _unknown_keys(value, section, f"{prefix}{key}.")


def _struct_type(annotation: Any) -> type[msgspec.Struct] | None:
    options = get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, msgspec.Struct)), None)
