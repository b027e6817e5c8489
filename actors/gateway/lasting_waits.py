"""Calls back what lasts for more than a second: one timer for all waits, most of which end before."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

LASTING_S = 1.0
_LEAST_S = 0.01  # between two looks


class LastingWaits:
    """Waits by key. A timer of the event loop for each would take as long as a twentieth of a short request.

    `later(delay_s, callback)` starts a timer and returns it; `cancel()` ends it. `now_s` is the monotonic clock.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], Any], now_s: Callable[[], float]) -> None:
        self._later, self._now_s = later, now_s
        self._waits: dict[Hashable, tuple[float, Callable[[], None]]] = {}  # when each has lasted a second, in this order
        self._timer: Any = None

    def add(self, key: Hashable, call: Callable[[], None]) -> None:
        """Call `call` after `LASTING_S`, up to 10 ms late, unless the key is removed before. The key is not here yet."""
        self._waits[key] = self._now_s() + LASTING_S, call
        if self._timer is None:
            self._timer = self._later(LASTING_S, self._look)

    def remove(self, key: Hashable) -> None:
        """The wait with this key is over, if there is one."""
        self._waits.pop(key, None)

    def stop(self) -> None:
        """Call nothing more."""
        self._waits = {}
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer, now_s, delay_s, due = None, self._now_s(), _LEAST_S, list[Hashable]()
        for key, (end_s, _) in self._waits.items():
            if end_s > now_s:
                delay_s = max(end_s - now_s, _LEAST_S)
                break
            due.append(key)
        if self._waits:  # also if it holds only what is due: one call may fail, and the others have their turn
            self._timer = self._later(delay_s, self._look)
        for key in due:
            if (wait := self._waits.pop(key, None)) is not None:
                wait[1]()
