"""Writes each event of structlog to the log file too, as a line of JSON, also where standard error shows fewer of them."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from messages.log_file.level_file import StreamLevel
from messages.log_file.writer import FLUSH_S, LogWriter

_MOST_LINE_BYTES = 1 << 16  # longer values are cut
_MOST_VALUE_CHARACTERS = 4096
_OF_EVERY_LINE = ("event", "actor", "incarnation", "level", "timestamp")
_LEVELS = logging.getLevelNamesMapping()
_present: list[LogTee] = []  # of this process: one at most


class LogTee:
    """A processor of structlog, before the one that renders. `stream_level`: standard error gets no events below it, and the
    file gets all that come here."""

    def __init__(self, writer: LogWriter, stream_level: StreamLevel) -> None:
        self._writer, self._stream_level = writer, stream_level

    def __call__(self, _: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Write the event to the file. Raises: structlog.DropEvent if standard error does not get it."""
        self.write(encoded(structlog.processors.format_exc_info(None, method, dict(event))))
        if not self.shows(event["level"]):
            raise structlog.DropEvent
        return event

    def shows(self, level: str) -> bool:
        """True if standard error gets events of this level, such as "info"."""
        return _LEVELS[level.upper()] >= self._stream_level.number

    def write(self, *lines: bytes) -> None:
        """Write lines of JSON, which have no newlines, to the file alone."""
        self._writer.write(lines)

    def flush(self, deadline_s: float) -> None:
        """Wait until the file has all lines, but no longer than `deadline_s` seconds."""
        self._writer.flush(deadline_s)


def encoded(event: Any) -> bytes:
    """An event as a line of JSON. What JSON does not know becomes its text; long values of a line that is too long are cut."""
    line = msgspec.json.encode(event, enc_hook=str)
    if len(line) <= _MOST_LINE_BYTES:
        return line
    cut = {key: _cut(value) for key, value in event.items()}
    line = msgspec.json.encode(cut, enc_hook=str)
    if len(line) <= _MOST_LINE_BYTES:
        return line
    return msgspec.json.encode({key: cut[key] for key in _OF_EVERY_LINE if key in cut})


def use_tee(tee: LogTee | None) -> None:
    """From now on `flush_log_file` flushes this one."""
    _present[:] = [] if tee is None else [tee]


def flush_log_file(deadline_s: float = FLUSH_S) -> None:
    """Wait until the log file has all lines of this process, but no longer than `deadline_s` seconds. To be called before a
    process ends without the interpreter's finalisation."""
    for tee in _present:
        tee.flush(deadline_s)


def _cut(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | None) else str(value)[:_MOST_VALUE_CHARACTERS]
