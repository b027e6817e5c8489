"""Logging of every process of the tree: one line an event on standard error, each with the actor and its incarnation.

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
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from supervisor.log_stream import LogStream

_LOST = "lines of this log were lost: there was no room, because nobody has read it"


def configure_logs(log_format: str, log_level: str, actor: str, incarnation: int) -> None:
    """Set up standard error, structlog and the standard logging of this process."""

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
        sys.stderr = cast(TextIO, LogStream(sys.stderr.fileno(), partial(_line_about_lost_ones, [*shared, *renderer])))
    level = getattr(logging, log_level.upper())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # a line and its newline in one write, because several processes share the stream
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, UnfailingStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer]
    )
    handler.setFormatter(formatter)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(True)  # of Python and its libraries, which are written to standard error otherwise


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


def _line_about_lost_ones(processors: list[Processor], n_lines: int) -> str:
    event: EventDict = {"event": _LOST, "lines": n_lines}
    for processor in processors:
        event = cast(EventDict, processor(None, "warning", event))  # the last one makes a text of it
    return f"{event}\n"


_tracebacks = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
_plain_traceback: Callable[..., None] = structlog.dev.plain_traceback
