"""Logging of every process of the tree: one line an event on standard error, each with the actor and its incarnation, and the
same events in the log file of the server, for `supervisor logs`.

Lines of other libraries (uvicorn, asyncio, torch) come through the standard logging module and get the same format. A traceback
never shows the values of variables, because they hold parts of prompts. A line that cannot be written (a full disk, a closed
pipe, a reader that does not read) is lost, and the process goes on.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from messages.log_file.level_file import StreamLevel
from messages.log_file.log_tee import LogTee, encoded, use_tee
from messages.log_file.rotated_file import NO_LOG_FILE, LogFile, RotatedFile
from messages.log_file.writer import LogWriter
from supervisor.log_stream import LogStream

_LOST = "lines of this log were lost: there was no room, because nobody has read it"
_LOST_IN_FILE = "lines of this log file were lost: there was no room, or the disk has refused them"


def configure_logs(
    log_format: str, log_level: str, actor: str, incarnation: int, file: LogFile = NO_LOG_FILE, run_dir: Path | None = None
) -> None:
    """Set up standard error, the log file, structlog and the standard logging of this process. Standard error shows events from
    `log_level` on, and the file at least those from info on. `run_dir`: where a change of the level is written down."""

    def add_identity(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("actor", actor)
        if incarnation:  # the supervisor logs before it has one
            event.setdefault("incarnation", incarnation)
        return event

    shared: list[Processor] = [
        add_identity,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[Processor]
    if log_format == "json":
        renderer = [_tracebacks, structlog.processors.JSONRenderer(default=str)]
    else:
        renderer = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_plain_traceback)]
    if sys.stderr is sys.__stderr__:
        sys.stderr = cast(TextIO, LogStream(sys.stderr.fileno(), partial(_line_about_lost_ones, _LOST, [*shared, *renderer])))
    level = logging.getLevelNamesMapping()[log_level.upper()]
    handlers = [_handler(sys.stderr, shared, renderer, max(level, logging.WARNING))]
    tee = _tee(file, shared, StreamLevel(level, run_dir))
    use_tee(tee)
    if tee is not None:
        in_file: list[Processor] = [structlog.processors.format_exc_info, lambda _, __, event: encoded(event).decode()]
        handlers.append(_handler(cast(TextIO, _FileLines(tee)), shared, in_file, logging.WARNING))
    structlog.configure(
        processors=[*shared, *([] if tee is None else [tee]), *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level if tee is None else min(level, logging.INFO)),
        # a line and its newline in one write, because several processes share the stream
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, UnfailingStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=min(handler.level for handler in handlers), handlers=handlers, force=True)
    logging.captureWarnings(True)  # of Python and its libraries, which are written to standard error otherwise


def _tee(file: LogFile, shared: list[Processor], stream_level: StreamLevel) -> LogTee | None:
    if not file.path or not file.most_bytes:
        return None

    def lost_line(n_lines: int) -> bytes:
        in_json: list[Processor] = [*shared, lambda _, __, event: encoded(event).decode()]
        return _line_about_lost_ones(_LOST_IN_FILE, in_json, n_lines).rstrip("\n").encode()

    return LogTee(LogWriter(RotatedFile(file), lost_line), stream_level)


def _handler(stream: TextIO, shared: list[Processor], renderer: list[Processor], level: int) -> logging.Handler:
    """Writes what other libraries log, from `level` on."""
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    remove: Any = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *renderer]))
    return handler


class _FileLines:
    """A text stream whose lines go to the log file."""

    def __init__(self, tee: LogTee) -> None:
        self._tee = tee

    def write(self, text: str) -> int:
        self._tee.write(text.rstrip("\n").encode())
        return len(text)

    def flush(self) -> None:
        """Nothing waits here."""


class UnfailingStream:
    """A text stream that ignores errors of the stream below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`, or lose it on an error."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, and ignore an error."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def _line_about_lost_ones(text: str, processors: list[Processor], n_lines: int) -> str:
    event: EventDict = {"event": text, "lines": n_lines}
    for processor in processors:
        event = cast(EventDict, processor(None, "warning", event))  # the last one makes a text of it
    return f"{event}\n"


_tracebacks = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
_plain_traceback: Callable[..., None] = structlog.dev.plain_traceback
