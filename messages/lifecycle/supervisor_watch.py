"""A child's view of its supervisor: it notices the death, and ends if no other supervisor comes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_POLL_S = 1.0


class SupervisorWatch:
    """Notices the death of the supervisor. Unless a next one is watched within `orphan_s` seconds, `on_abandoned` is called."""

    def __init__(self, orphan_s: float, on_abandoned: Callable[[], None]) -> None:
        self._orphan_s, self._on_abandoned = orphan_s, on_abandoned
        self._pid, self._pidfd = 0, -1
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, pid: int) -> None:
        """Watch this process instead of the last one; 0: nobody."""
        self.close()
        self._pid = pid
        if not pid:
            return
        try:
            self._pidfd = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._pidfd, self._died)
        except ProcessLookupError:
            self._died()
        except OSError:  # no pidfds here, or no descriptor is left
            self._poll()

    def close(self) -> None:
        """Watch nobody."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _poll(self) -> None:
        try:
            os.kill(self._pid, 0)
        except OSError:
            self._died()
        else:
            self._timer = asyncio.get_running_loop().call_later(_POLL_S, self._poll)

    def _died(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(self._orphan_s, self._on_abandoned)
