"""Decides when a draining gateway is done: every sequence has ended and every client has read its ending.

An HTTP answer is delivered when its connection has sent all of it and the client's machine has confirmed the bytes; an answer
over ZeroMQ, when the client has confirmed the ending. The drain gives up a client that has read nothing, or has not been
connected, for `handover_s`; a live client reconnects sooner than that. Such a client can still ask for its answer: the journal
keeps it for `retention_s`, over restarts. The drain always ends shortly before its deadline: a server that has finished its
work counts as drained even if some client does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import structlog

from actors.gateway.dispatch.post import Post, Timer
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.lifecycle.undelivered import UndeliveredAnswers

_POLL_S = 0.02
_MARGIN_S = 0.5  # before the deadline: time to report to the supervisor


class Draining:
    """One drain of one gateway. `on_drained` is called once, when it is over."""

    def __init__(
        self,
        manager: RequestManager,
        unread_by_connection: Callable[[], Mapping[Hashable, int]],
        post: Post,
        *,
        handover_s: float,
        deadline_s: float,
        on_drained: Callable[[], None],
    ) -> None:
        """`unread_by_connection` returns the bytes that the client of each open HTTP connection has not read yet."""
        self._manager, self._unread_by_connection, self._post, self._on_drained = (
            manager,
            unread_by_connection,
            post,
            on_drained,
        )
        self._connections = UndeliveredAnswers(handover_s)
        self._end_s = post.now_s() + max(deadline_s - _MARGIN_S, deadline_s / 2)
        self._timer: Timer | None = None
        manager.gate.is_draining = True

    def poll(self) -> None:
        """Call `on_drained` if the drain is over, else poll again after 20 ms."""
        self.stop()
        n_clients = self._n_clients()
        if self._manager.gate.n_active or (n_clients and self._post.now_s() < self._end_s):
            self._timer = self._post.later(_POLL_S, self.poll)
            return
        if n_clients:
            structlog.get_logger().warning("drain ended before every client had read its answer", clients=n_clients)
        self._on_drained()

    def stop(self) -> None:
        """Stop polling."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _n_clients(self) -> int:
        """Clients whose answers are pending; 0 while sequences are active, because the drain waits for those first."""
        if self._manager.gate.n_active:
            return 0
        now_s = self._post.now_s()
        self._connections.update(self._unread_by_connection(), now_s)
        return self._connections.n_pending(now_s) + self._manager.finished.undelivered.n_pending(now_s)
