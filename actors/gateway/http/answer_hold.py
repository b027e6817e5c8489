"""What the answer to one request knows of the hold of its connection."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

from actors.gateway.custody.hold import MAX_PATH, AnswerHold, Hold
from actors.gateway.custody.kept_request import KeptRequest


class HoldableConnection(Protocol):
    """A connection of which the custodian may hold a duplicate."""

    @property
    def is_alone(self) -> bool:
        """True if nothing has been read after the request that is answered now."""
        ...

    @property
    def has_request(self) -> bool:
        """True if the bytes of the request that is answered now are held, so it was accepted."""
        ...

    def hold(self) -> Hold | None:
        """The hold of this connection, made when it is first asked for; None without a custodian."""
        ...

    def note_held(self) -> None:
        """The answer that is under way is held: a successor can go on with it."""
        ...


class ConnectionAnswerHold(AnswerHold):
    """What the answer to one request knows of its connection's hold."""

    def __init__(self, connection: HoldableConnection, url: bytes, keeps_alive: bool, has_chunks: bool, origin: str) -> None:
        self._connection = weakref.ref(connection)  # weak: a closed connection is freed at once, without a cycle
        self._url, self._origin = url, origin
        self._keeps_alive, self._has_chunks = keeps_alive, has_chunks

    def begin(self, request: str, start: int = -1, run: int = 0) -> None:
        connection = self._connection()
        hold = connection.hold() if connection is not None else None
        if connection is not None and hold is not None:
            self._begin(connection, hold, request, start, run)

    def _begin(
        self,
        connection: HoldableConnection,
        hold: Hold,
        request: str,
        start: int = -1,
        run: int = 0,
        *,
        n_tries: int = 0,
    ) -> None:
        path = self._url.partition(b"?")[0].decode("ascii", "replace")[:MAX_PATH]
        how = {"keeps_alive": self._keeps_alive, "has_chunks": self._has_chunks, "n_tries": n_tries}
        hold.begin(request, path, start, self._origin, run, is_alone=connection.is_alone, **how)
        connection.note_held()

    def note_run(self, run: int) -> None:
        connection = self._connection()
        if connection is not None and (hold := connection.hold()) is not None:
            hold.note_run(run)

    @property
    def was_accepted(self) -> bool:
        connection = self._connection()
        return connection is not None and connection.has_request

    def begin_computing(self, request: str, http_request: Callable[[], bytes]) -> None:
        connection = self._connection()
        hold = connection.hold() if connection is not None else None
        if connection is None or hold is None or not connection.is_alone:
            return
        if hold.has_request:
            connection.note_held()
        elif (kept := KeptRequest.of(hold.key, http_request())) is not None:
            hold.keep(kept)
            self._begin(connection, hold, request, n_tries=1)
