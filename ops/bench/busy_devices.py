"""Which share of a time the devices of a server were busy, from the times of their steps in /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from ops.bench.own_server import OwnServer
from ops.bench.told_metrics import by_actor

_FAMILY = "tardigrade_worker_step_seconds"
_SETTLED_S = 2.5  # ranks send their metrics once a second: they are all there when nothing has changed for so long
_DEADLINE_S = 30.0


class BusyDevices:
    """The busy time of one server's devices. Where ranks compute one step together, one of them tells it."""

    def __init__(self, server: OwnServer) -> None:
        self._url = f"{server.url}/metrics"

    def share(self, run: Callable[[], float]) -> tuple[float, float]:
        """Call `run`, which returns how many seconds something took. Returns these, and the devices' mean busy share of them.

        Raises: ValueError when no step was measured."""
        before_s = self._settled()
        wall_s = run()
        after_s = self._settled()
        busy_s = [at_s - before_s.get(name, 0.0) for name, at_s in after_s.items()]
        busy_s = [one_s for one_s in busy_s if one_s > 0.0]
        if not busy_s:
            raise ValueError(f"{_FAMILY}: expected steps of at least one rank, got none")
        return wall_s, sum(busy_s) / len(busy_s) / wall_s

    def _settled(self) -> dict[str, float]:
        """The busy seconds of each rank so far, once they do not change any more."""
        known, end_s = self._read(), time.monotonic() + _DEADLINE_S
        same_since_s = time.monotonic()
        while time.monotonic() < min(same_since_s + _SETTLED_S, end_s):
            time.sleep(0.25)
            if (now := self._read()) != known:
                known, same_since_s = now, time.monotonic()
        return known

    def _read(self) -> dict[str, float]:
        return by_actor(httpx.get(self._url, timeout=30.0).text, f"{_FAMILY}_sum")
