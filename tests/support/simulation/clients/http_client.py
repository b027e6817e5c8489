"""HTTP clients of a simulated server: streams that go on by key, by id or on the same connection, and whole answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.support.simulation.clients.client import Client
from tests.support.simulation.clients.history import History, Kind
from tests.support.simulation.clients.http_connection import Cut, HttpConnection
from tests.support.simulation.clients.planned_requests import ClientKind, PlannedRequest

_RETRYABLE = (429, 503)
_PAUSE_S = (0.0, 0.0, 0.0, 0.001, 0.02)
_DONE = b"[DONE]"


class HttpClient(Client):
    """Sends one request and comes back for its answer until it has all of it. `folder`: where its end of a connection is bound.
    `listener`: the path of the server's socket."""

    def __init__(self, planned: PlannedRequest, history: History, chance: random.Random, folder: Path, listener: Path) -> None:
        super().__init__(planned, history, chance)
        self._folder, self._listener = folder, listener
        self._n_connections = self._last_event = 0
        self.may_be_cut: Callable[[], bool] = lambda: True
        self.may_lose_events: Callable[[], bool] = lambda: False

    async def ask(self) -> None:
        self._n_connections += 1
        name = self._folder / f"{self.planned.request}.{self._n_connections}"
        connection = HttpConnection(name, lambda: self.chance.choice(_PAUSE_S))
        has_begun = False
        try:
            await connection.connect(self._listener)
            await connection.send(self.planned.http_call(self._last_event))
            status, headers = await connection.read_head()
            has_begun = status == 200
            await self._read(connection, status, headers)
        except (Cut, OSError) as error:
            if has_begun and not self.may_be_cut():
                self.note(Kind.CUT, detail=str(error))
            self.has_left |= self.planned.client_kind is ClientKind.PLAIN and has_begun
        finally:
            connection.close()

    async def _read(self, connection: HttpConnection, status: int, headers: dict[bytes, bytes]) -> None:
        if status in _RETRYABLE:
            await connection.read_body(headers)
        elif status != 200:
            body = await connection.read_body(headers) if status != 204 else b""
            if status == 400 and b"the id of an event that the journal has" in body and self.may_lose_events():
                self.has_left = True  # it has seen events that only the memory of a dead gateway had
                return
            self.note(Kind.REFUSED, detail=f"{status} {body!r}")
        elif self.planned.client_kind is ClientKind.WHOLE:
            self._take_whole(msgspec.json.decode(await connection.read_body(headers)))
        else:
            async for chunk in connection.chunks():
                self._take_event(chunk)
                if self.has_left or self.history.is_broken(self.planned.request):
                    return
            if not self.is_done and not self.has_left:
                self.note(Kind.CUT, detail="the stream has ended, the answer has not")

    def _take_whole(self, body: dict[str, Any]) -> None:
        self.note(Kind.TOKENS, ids=body["tokens"], text=body["text"])
        self.note(Kind.ENDED, reason=body["finish_reason"])

    def _take_event(self, chunk: bytes) -> None:
        lines = [line.partition(b": ") for line in chunk.split(b"\n") if line and not line.startswith(b":")]
        fields = {name: value for name, _, value in lines}
        if b"id" in fields:
            number = int(fields[b"id"])
            if number <= self._last_event:
                self.note(Kind.CUT, detail=f"event {number} after event {self._last_event}")
            self._last_event = number
            self.note(Kind.EVENT, event=number, data=fields[b"data"])
        data = fields.get(b"data")
        if data is not None and data != _DONE:
            self._take_data(msgspec.json.decode(data))

    def _take_data(self, data: dict[str, Any]) -> None:
        if "error" in data:
            self.note(Kind.REFUSED, detail=str(data["error"]))
            return
        for choice in data["choices"]:
            if choice["text"]:
                self.note(Kind.TEXT, choice["index"], text=choice["text"])
            if choice["finish_reason"]:
                self.note(Kind.ENDED, choice["index"], reason=choice["finish_reason"])
