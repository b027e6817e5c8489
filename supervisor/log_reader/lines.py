"""The lines of a log file, and which of them a reader wants. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from messages.ids import role_of
from messages.log_file.request_names import REQUEST, REQUESTS

ENDED = "request"  # the event of a line of the access log
_LIVES = ("child died", "child ended", "child ready", "child ready again", "standby promoted", "state")
_BESIDE_S = 2.0  # lines about lives are shown from so long before a request until so long after it
_IDS = (REQUEST, "x_request_id", "trace")
_LEVELS = logging.getLevelNamesMapping()


@dataclass(frozen=True)
class LogLine:
    """One event. `fields`: what it has beside the rest; `at_s`: Unix time; `raw`: as it stands in the file."""

    at_s: float
    level: str
    actor: str
    incarnation: int
    event: str
    fields: dict[str, Any]
    raw: bytes


def parsed(raw: bytes) -> LogLine | None:
    """The event of a line; None for one that was torn, as by a full disk."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        at_s = datetime.fromisoformat(fields.pop("timestamp")).replace(tzinfo=UTC).timestamp()
        known = str(fields.pop("level")), str(fields.pop("actor")), int(fields.pop("incarnation", 0)), str(fields.pop("event"))
    except (msgspec.MsgspecError, KeyError, ValueError, TypeError):
        return None
    return LogLine(at_s, *known, fields, raw)


@dataclass(frozen=True)
class Selection:
    """Which lines are wanted. `actor`: its name ("worker/0.1"), or the role of several ("worker"); lines of others about it
    count. `request`: the id of a request, an X-Request-Id or a trace id. `since_s`: Unix time. "" and 0: all."""

    actor: str = ""
    request: str = ""
    since_s: float = 0.0
    level: str = "debug"
    own_ids: tuple[str, ...] = ()  # the server's, where `request` is another id of one request or of several

    def may_take(self, raw: bytes) -> bool:
        """False if the line cannot be wanted: a quick look before it is parsed."""
        return not self.request or any(id_.encode() in raw for id_ in self._ids)

    @property
    def _ids(self) -> list[str]:
        return [self.request, *self.own_ids]

    def takes(self, line: LogLine) -> bool:
        """True if the line is wanted."""
        if line.at_s < self.since_s or _LEVELS.get(line.level.upper(), 0) < _LEVELS[self.level.upper()]:
            return False
        return (not self.actor or self._is_of_actor(line)) and (not self.request or self._names_request(line))

    def _is_of_actor(self, line: LogLine) -> bool:
        return any(self.actor in (name, role_of(name)) for name in _actors(line))

    def _names_request(self, line: LogLine) -> bool:
        fields, among = line.fields, line.fields.get(REQUESTS) or ()
        return any(id_ in among or any(fields.get(key) == id_ for key in _IDS) for id_ in self._ids)


def actors_in(raw_lines: Iterable[bytes]) -> set[str]:
    """All actors that lines are from, or about."""
    return {name for line in map(parsed, raw_lines) if line is not None for name in _actors(line)}


def selected(raw_lines: Iterable[bytes], wanted: Selection) -> Iterator[LogLine]:
    """The lines that are wanted, in the order of the file."""
    for raw in raw_lines:
        if wanted.may_take(raw) and (line := parsed(raw)) is not None and wanted.takes(line):
            yield line


def with_own_ids(raw_lines: Iterable[bytes], wanted: Selection) -> Selection:
    """The same selection with the server's own ids, by which lines about several requests name them: that of a request, or of
    each request of a trace."""
    found = (str(line.fields.get(REQUEST, "")) for line in selected(raw_lines, wanted))
    return replace(wanted, own_ids=tuple(dict.fromkeys(filter(None, found))))


def story(raw_lines: Iterable[bytes], wanted: Selection) -> list[LogLine]:
    """The lines about one request, or about those of a trace, and beside them the deaths and starts of processes meanwhile, by
    time. The line at the end of each becomes three: accepted, first token, ended."""
    kept = list(raw_lines)
    about = list(selected(kept, wanted))
    lines = [part for line in about for part in _phases(line)]
    if not lines:
        return []
    first_s, last_s = min(line.at_s for line in lines) - _BESIDE_S, max(line.at_s for line in lines) + _BESIDE_S
    marks = [f'"event":"{event}"'.encode() for event in _LIVES]
    lives = (parsed(raw) for raw in kept if any(mark in raw for mark in marks))
    lines += [line for line in lives if line is not None and first_s <= line.at_s <= last_s]
    return sorted(lines, key=lambda line: line.at_s)


def _actors(line: LogLine) -> list[str]:
    """The actor that a line is from, and the one that it is about."""
    return [name for name in (line.actor, str(line.fields.get("child", ""))) if name]


def _phases(line: LogLine) -> list[LogLine]:
    total_ms = line.fields.get("total_ms")
    if line.event != ENDED or not isinstance(total_ms, int | float):
        return [line]
    began_s = line.at_s - total_ms / 1e3
    parts = [_at(line, began_s, "accepted", ("api", "model", "tenant", "prompt_tokens"))]
    first_ms = line.fields.get("first_token_ms")
    if isinstance(first_ms, int | float):
        parts.append(_at(line, began_s + first_ms / 1e3, "first token", ("queue_ms", "prefill_ms", "first_token_ms", "cache")))
    shown = {field for part in parts for field in part.fields} | {REQUEST}
    rest = tuple(field for field in line.fields if field not in shown)
    return [*parts, _at(line, line.at_s, "ended", rest)]


def _at(line: LogLine, at_s: float, event: str, fields: tuple[str, ...]) -> LogLine:
    shown = {field: line.fields[field] for field in fields if line.fields.get(field) is not None}
    return LogLine(at_s, line.level, line.actor, line.incarnation, event, shown, line.raw)
