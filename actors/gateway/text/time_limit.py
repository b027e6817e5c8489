"""A limit on the processor time of code that comes with a model, such as a chat template."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


class TooSlow(Exception):
    """The limit has passed."""


class _LimitedBody:
    """Whether the body of a limit runs now. The signal may also come with its end."""

    is_running = False


@cache
def _install() -> None:
    """Handle the signal of the timer, from now on. Once for a process: it takes ten times as long as to set the timer."""

    def stop(number: int, frame: object) -> None:
        if _LimitedBody.is_running:
            raise TooSlow

    signal.signal(signal.SIGPROF, stop)


@contextmanager
def processor_limit(limit_s: float) -> Iterator[None]:
    """Raises TooSlow in the body once this process has used so much of a processor in it. A call into C ends first.

    Only the main thread, in which the event loop runs, can be interrupted: in another one there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _install()
    _LimitedBody.is_running = True
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        _LimitedBody.is_running = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)
