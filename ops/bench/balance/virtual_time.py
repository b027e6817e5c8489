"""A clock that jumps from one event to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class PendingEvent:
    """A callback that is due at some time, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """It is not called."""
        self.callback = None


class VirtualTime:
    """Calls what is due, in order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, PendingEvent]] = []
        self._n_added = 0

    def later(self, delay_s: float, callback: Callable[[], None]) -> PendingEvent:
        """Call `callback` after `delay_s`."""
        event = PendingEvent(callback)
        self._n_added += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._n_added, event))
        return event

    def run(self, until_s: float) -> None:
        """Call everything that is due until then."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now_s, _, event = heapq.heappop(self._heap)
            if event.callback is not None:
                event.callback()
        self.now_s = until_s
