"""How every process of the tree logs: one line an event on standard error, with the actor and its life in each line.

Lines of other libraries (uvicorn, asyncio, torch) come through the standard logging module and get the same shape.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

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
        renderer = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(default=str)]
    else:
        renderer = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_plain_traceback)]
    level = getattr(logging, log_level.upper())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # a line and its end in one write: processes share it
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer]
    )
    handler.setFormatter(formatter)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)


_plain_traceback: Callable[..., None] = structlog.dev.plain_traceback
