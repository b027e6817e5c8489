"""Which running requests have been without a reader for too long. Pure: the caller gives the time.

Only time counts in which their clients could have come back:

    this process was stopped               does not count: clients may wait in its sockets
    their gateway has died with them       counts once all gateways serve again. A connection that this gateway had passed on is
                                           at the custodian, and the next incarnation asks for the request again
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from actors.gateway.requests.request import Request

POLL_EVERY_S = 1.0  # how often `expired` is to be called
_AT_NO_TIME = math.inf  # `Request.orphaned_s` while the gateway of its client is away


class Orphans:
    """Judges requests by `Request.orphaned_s`. `patience_s`: how long they wait for a reader."""

    def __init__(self, patience_s: float, now_s: float) -> None:
        self._patience_s, self._checked_s = patience_s, now_s

    def add(self, request: Request, now_s: float, *, with_gateway: bool = False) -> None:
        """The last reader of a request has left. `with_gateway`: because another gateway, which passed the answer on, died."""
        request.orphaned_s = _AT_NO_TIME if with_gateway else now_s

    def gateways_serve(self, requests: Iterable[Request], now_s: float) -> None:
        """All gateways serve: from now on time counts for those that were lost with one."""
        for request in requests:
            if request.orphaned_s == _AT_NO_TIME:
                request.orphaned_s = now_s

    def expired(self, requests: Iterable[Request], now_s: float) -> list[Request]:
        """The requests for which nobody waits any more. A request in the background needs no reader."""
        stopped_s = max(now_s - self._checked_s - POLL_EVERY_S, 0.0)
        self._checked_s = now_s
        found = []
        for request in requests:
            if request.orphaned_s:
                request.orphaned_s = max(request.orphaned_s, min(request.orphaned_s + stopped_s, now_s))
                if now_s - request.orphaned_s > self._patience_s and not request.spec.is_background:
                    found.append(request)
        return found
