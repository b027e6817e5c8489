"""How every process of the tree logs: one line an event on standard error, with the actor and its life in each line.

Lines of other libraries (uvicorn, asyncio, torch) come through the standard logging module and get the same shape. A traceback
never shows the values of variables: they hold pieces of prompts. A line that cannot be written (a full disk, a reader that has
gone) is lost, and nothing else with it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def configure_logs(log_format: str, log_level: str, actor: str, incarnation: int) -> None:
    """Set up structlog and the standard logging of this process."""

    def add_identity(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("actor", actor)
        if incarnation:  # the supervisor speaks before it has one
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
    level = getattr(logging, log_level.upper())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # a line and its end in one write: processes share it
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, Unfailing(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer]
    )
    handler.setFormatter(formatter)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)


class Unfailing:
    """A text stream to write to whose refusals are nobody's business: who speaks goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose it."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write now what still waits, or go on without."""
        with contextlib.suppress(OSError):
            self._stream.flush()


_tracebacks = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
_plain_traceback: Callable[..., None] = structlog.dev.plain_traceback
