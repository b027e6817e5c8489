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
    def is_again(self) -> bool:
        """True if the bytes of the request that is answered now are held: it was accepted."""
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
        is_computed_again: bool = False,
    ) -> None:
        path = self._url.partition(b"?")[0].decode("ascii", "replace")[:MAX_PATH]
        how = {"keeps_alive": self._keeps_alive, "has_chunks": self._has_chunks, "is_computed_again": is_computed_again}
        hold.begin(request, path, start, self._origin, run, is_alone=connection.is_alone, **how)
        connection.note_held()

    def note_run(self, run: int) -> None:
        connection = self._connection()
        if connection is not None and (hold := connection.hold()) is not None:
            hold.note_run(run)

    @property
    def is_again(self) -> bool:
        connection = self._connection()
        return connection is not None and connection.is_again

    def begin_computing(self, request: str, message: Callable[[], bytes]) -> None:
        connection = self._connection()
        hold = connection.hold() if connection is not None else None
        if connection is None or hold is None or not connection.is_alone:
            return
        if hold.is_kept:
            connection.note_held()
        elif (kept := KeptRequest.of(hold.key, message())) is not None:
            hold.keep(kept)
            self._begin(connection, hold, request, is_computed_again=True)
