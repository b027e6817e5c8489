"""SIGINT (Ctrl-C) for the commands that go on until it comes."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import NoReturn


def take_interrupts() -> None:
    """From now on SIGINT interrupts this process, whoever has started it. A shell script starts its background jobs with the
    signal ignored, and a program may start others with it blocked; both are inherited."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Interrupts:
    """A `with` block that SIGINT ends without a word. Made and used by the main thread.

    `has_come`: True since the first SIGINT; a loop in the block looks at it. Python drops a KeyboardInterrupt that is raised in
    a destructor or in a callback of a weak reference, as at the end of each import.
    """

    def __init__(self) -> None:
        self.has_come = False

    def __enter__(self) -> Interrupts:
        take_interrupts()
        signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> bool:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return isinstance(error, KeyboardInterrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self.has_come = True
        raise KeyboardInterrupt
