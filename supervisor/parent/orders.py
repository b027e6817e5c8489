"""The signals that order something of the server, which the next supervisor gets too. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable

_MOST = 2  # a second Ctrl-C kills
_HEARD = 2  # signs of life after which a supervisor has handled a signal


class Orders:
    """The last signals, which the next supervisor gets too. `numbers`: in their order."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.numbers = list(numbers)
        self._n_heard = 0

    def note(self, number: int) -> None:
        """This signal has come."""
        self.numbers, self._n_heard = [*self.numbers, number][-_MOST:], 0

    def sent(self) -> list[int]:
        """What a new supervisor gets."""
        self._n_heard = 0
        return self.numbers

    def heard(self) -> None:
        """The supervisor shows that it handles signals. One that has handled SIGHUP has reloaded the configuration, or has
        written down that the server ends; the next one would reload again, and find what nobody has asked it to read."""
        self._n_heard += 1
        if self._n_heard == _HEARD:
            self.numbers = [number for number in self.numbers if number != signal.SIGHUP]
