"""A log line as text for people, in colours where a terminal shows them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from messages.log_file.request_names import REQUESTS
from supervisor.log_reader.lines import LogLine

_COLORS = {"debug": "bright_black", "info": "green", "warning": "yellow", "error": "red", "critical": "red"}
_ROLE_COLORS = ("cyan", "magenta", "blue", "green", "yellow")
_MOST_NAMED = 3  # requests of a line about many
_ACTOR_WIDTH, _LEVEL_WIDTH = 19, 7
_EXCEPTION, _CHILD = "exception", "child"


class LogText:
    """Makes lines of text. `request`: of the story that is shown, which lines need not repeat."""

    def __init__(self, has_colors: bool, request: str = "") -> None:
        self._has_colors, self._request = has_colors, request
        self._day = ""

    def lines(self, line: LogLine) -> list[str]:
        """The line, after the day where it is another one than that of the line before, and with a traceback below it."""
        at = datetime.fromtimestamp(line.at_s, UTC)
        day, text = at.strftime("%Y-%m-%d"), []
        if day != self._day:
            self._day = day
            text.append(self._style(f"{day} (UTC)", bold=True))
        own, child = line.incarnation, line.fields.get(_CHILD)
        actor = f"{line.actor}.{own}" if own and not child else line.actor  # a line about a child has the child's incarnation
        head = [
            self._style(f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}", fg="bright_black"),
            self._style(f"{line.level:<{_LEVEL_WIDTH}}", fg=_COLORS.get(line.level, "white")),
            self._style(f"{actor:<{_ACTOR_WIDTH}}", fg=_ROLE_COLORS[sum(line.actor.encode()) % len(_ROLE_COLORS)]),
            self._style(line.event, bold=line.level not in ("debug", "info")),
        ]
        shown = {key: value for key, value in line.fields.items() if key != _EXCEPTION and not self._is_known(value)}
        if child and own:
            shown[_CHILD] = f"{child}.{own}"
        fields = [self._field(key, value) for key, value in shown.items()]
        text.append("  ".join([" ".join(head), *([" ".join(fields)] if fields else [])]))
        if trace := line.fields.get(_EXCEPTION):
            text += [f"    {row}" for row in str(trace).splitlines()]
        return text

    def _is_known(self, value: Any) -> bool:
        return bool(self._request) and value == self._request

    def _field(self, key: str, value: Any) -> str:
        if key == REQUESTS and isinstance(value, list):
            value = self._requests(value)
        shown = f'"{value}"' if isinstance(value, str) and " " in value else f"{value}"
        return f"{self._style(key, fg='bright_black')}={shown}"

    def _requests(self, ids: list[Any]) -> str:
        if self._request in ids:
            return "this one" if len(ids) == 1 else f"this one and {len(ids) - 1} more"
        named = ",".join(map(str, ids[:_MOST_NAMED]))
        return named if len(ids) <= _MOST_NAMED else f"{named} and {len(ids) - _MOST_NAMED} more"

    def _style(self, text: str, fg: str | None = None, bold: bool = False) -> str:
        return click.style(text, fg=fg, bold=bold) if self._has_colors else text
