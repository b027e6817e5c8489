"""When a draining gateway has nothing left to finish: its sequences have ended, and their clients have read the end.

An HTTP answer is handed over when its connection has written all of it and the client's machine has confirmed the bytes; one to
a ZeroMQ client when the client has confirmed the ending. A client that takes nothing for `handover_s`, or is not there for so
long since its answer ended, is not waited for: a living one connects again within SILENCE_S and a second. What it can ask for
again stays retained in the journal for `retention_s`, over restarts. In any case the wait ends a little before the drain's
deadline, so that a server whose work is done ends as one, whatever its clients do.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from actors.gateway.dispatch.dispatcher import Post, Timer
from actors.gateway.dispatch.request_desk import RequestDesk
from actors.gateway.dispatch.undelivered import UndeliveredAnswers
from actors.gateway.http.server import HttpServer

_LOOK_S = 0.02
_MARGIN_S = 0.5  # before the deadline, for the last word to arrive


class Draining:
    """One drain of one gateway: `done` is called once, when it is over."""

    def __init__(
        self,
        desk: RequestDesk,
        http: HttpServer | None,
        post: Post,
        handover_s: float,
        deadline_s: float,
        done: Callable[[], None],
    ) -> None:
        self._desk, self._http, self._post, self._done = desk, http, post, done
        self._connections = UndeliveredAnswers(handover_s)
        self._end_s = post.now_s() + max(deadline_s - _MARGIN_S, deadline_s / 2)
        self._timer: Timer | None = None
        desk.gate.is_draining = True

    def look(self) -> None:
        """Is it over? If not, look again soon."""
        self.stop()
        n_clients = self._n_clients()
        if self._desk.n_active or (n_clients and self._post.now_s() < self._end_s):
            self._timer = self._post.later(_LOOK_S, self.look)
            return
        if n_clients:
            structlog.get_logger().warning("drained before every client has read the end", clients=n_clients)
        self._done()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _n_clients(self) -> int:
        """Clients that are waited for, once nothing is left to compute."""
        if self._desk.n_active:
            return 0
        now_s = self._post.now_s()
        self._connections.update({} if self._http is None else self._http.unread_by_connection(), now_s)
        return self._connections.n_pending(now_s) + self._desk.undelivered.n_pending(now_s)
