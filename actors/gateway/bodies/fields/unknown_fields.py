"""Fields of a body that this server does not know: they are taken out of it, told to the client, and logged once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

import msgspec
import structlog

from actors.gateway.bodies.fields.foreign_fields import LOGGED_NAMES, NEAR, name_here, names_of

IGNORED_HEADER = "X-Ignored-Fields"
_INSIDE = {"structured_outputs": "whitespace_pattern"}  # a part that is ignored, of a field that has no struct
_MOST_TOLD = 32  # names in one answer
_MOST_COMPARED = 64  # misspelt names of a process's life
_OTHER = "one that no known API has"
_MOST_CHARACTERS = 80  # of a name
# fields of one endpoint that mean nothing at the others; any other one is refused there, because a limit would be lost
_HARMLESS_ELSEWHERE = frozenset(("request_id", "return_token_strs"))


def take_unknown(fields: dict[str, Any], kind: type[msgspec.Struct], own_names: Collection[str], ignored: list[str]) -> None:
    """Remove the fields that `kind` does not have, also within its objects, and append their names to `ignored`.

    Those of another endpoint stay, with a value that asks for something, and so do those of another API that have another name
    here, unless the API of `kind` passes over them, as its PASSED_OVER says. `own_names`: the fields of all endpoints.
    """
    known, passed_over = names_of(kind), getattr(kind, "PASSED_OVER", ())
    for name in [name for name in fields if name not in known]:
        is_elsewhere = (name in own_names and name not in _HARMLESS_ELSEWHERE) or (fields[name] and name_here(name, known))
        if name in passed_over or not is_elsewhere or fields[name] is None or fields[name] is False:
            _take(fields, name, name, ignored)
    for field, name in _INSIDE.items():
        if isinstance(value := fields.get(field), dict) and value.get(name) is not None:
            _take(value, name, f"{field}.{name}", ignored)
    for field, inner in _objects_of(kind).items():
        if isinstance(value := fields.get(field), dict):
            for name in [name for name in value if name not in names_of(inner)]:
                _take(value, name, f"{field}.{name}", ignored)


def tell(ignored: list[str], path: str) -> None:
    """Append what was ignored, unless one answer has no room for more."""
    if len(ignored) < _MOST_TOLD:
        ignored.append(path)


def header_of(names: Iterable[str]) -> str:
    """The value of the header: the names in their order, in printable ASCII, without commas in a name."""
    return ", ".join(dict.fromkeys(map(_printable, names)))


class IgnoredFieldsLog:
    """Logs each ignored field of each endpoint once. Names that a client may have made up are never logged; where one is nearly
    that of a field, it was probably misspelt, and the log names that field. `known`: the names of all fields."""

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = sorted(known)
        self._logged: set[tuple[str, str]] = set()
        self._meant: dict[str, str] = {}  # what was probably meant by the first names; a comparison takes a millisecond

    def note(self, endpoint: str, names: Iterable[str]) -> None:
        """Fields of one body were ignored. `endpoint`: its path."""
        for name in names:
            shown = name if name in LOGGED_NAMES else self._in_words(name)
            if (endpoint, shown) not in self._logged:
                self._logged.add((endpoint, shown))
                structlog.get_logger().warning("unknown field is ignored", field=shown, endpoint=endpoint)

    def _in_words(self, name: str) -> str:
        name = name[:_MOST_CHARACTERS]
        if name not in self._meant and len(self._meant) < _MOST_COMPARED:
            close = get_close_matches(name, self._known, n=1, cutoff=NEAR)
            self._meant[name] = f"{_OTHER}, but nearly {close[0]}" if close else _OTHER
        return self._meant.get(name, _OTHER)


def _take(fields: dict[str, Any], name: str, path: str, ignored: list[str]) -> None:
    del fields[name]
    tell(ignored, path)


@cache
def _objects_of(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The fields of a body that are objects with fields of their own."""
    objects: dict[str, type[msgspec.Struct]] = {}
    for field in msgspec.structs.fields(kind):
        for some in get_args(field.type) or (field.type,):
            if isinstance(some, type) and issubclass(some, msgspec.Struct):
                objects[field.name] = some
    return objects


def _printable(name: str) -> str:
    return "".join(c if " " <= c <= "~" and c != "," else "?" for c in name[:_MOST_CHARACTERS])
