"""How long each phase of a start took: the log line of a ready rank says where the time went."""

from __future__ import annotations

import time
from collections.abc import Callable


class LoadingTimes:
    """The phases of one start, in the order in which they were first reported. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """A phase is reported; only its first report counts, because a phase is reported again as it goes on."""
        self._begun_s.setdefault(phase, self._clock())

    def seconds(self) -> dict[str, float]:
        """The duration of each phase in seconds, to a hundredth. A phase ends when the next one begins, the last one now."""
        ends_s = [*list(self._begun_s.values())[1:], self._clock()]
        return {phase: round(end - begun, 2) for (phase, begun), end in zip(self._begun_s.items(), ends_s, strict=False)}
