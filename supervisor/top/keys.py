"""Single keys of a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any


class Keys:
    """Reads keys inside of a `with` block, and leaves the terminal as it was. Without a terminal there are no keys."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._before: list[Any] | None = None

    def __enter__(self) -> Keys:
        if self._fd >= 0:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, timeout_s: float) -> str:
        """The keys that are pressed until one has come or `timeout_s` has passed; "" if there is none. A terminal that is gone
        counts as q."""
        fds = [self._fd] if self._fd >= 0 else []
        if not select.select(fds, [], [], max(timeout_s, 0.0))[0]:
            return ""
        return os.read(self._fd, 64).decode(errors="ignore") or "q"
