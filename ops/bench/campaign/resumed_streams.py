"""HTTP clients that come back: after each cut they ask for the rest of their answer by its id, as an EventSource does."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus

import httpx
import msgspec

from supervisor.bench.http.completion_events import DONE
from supervisor.drill.streams import WHOLE, DrillStream, StreamRequest, body_of

_AGAIN_S = 0.1
_SHOWN_CHARS = 200


class _TextChoice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _NumberedEvent(msgspec.Struct):
    id: str = ""
    choices: list[_TextChoice] = []
    error: msgspec.Raw = msgspec.Raw(b"")


async def follow_through(http: httpx.AsyncClient, options: StreamRequest, stream: DrillStream) -> None:
    """Stream one answer to its end, over as many connections as that takes. What ends it early is noted in `stream.error`."""
    stream.began_s = time.monotonic()
    reader = _Reader(stream)
    try:
        async with asyncio.timeout(options.deadline_s):
            while not (stream.is_complete or stream.error):
                try:
                    await reader.read(http, options)
                except httpx.TransportError:
                    await asyncio.sleep(_AGAIN_S)  # the server is away
    except TimeoutError:
        stream.error = f"not finished within {options.deadline_s:g} s"


class _Reader:
    def __init__(self, stream: DrillStream) -> None:
        self._stream = stream
        self._answer = self._event = ""  # the id of the answer and that of its last event

    async def read(self, http: httpx.AsyncClient, options: StreamRequest) -> None:
        """One connection: the request, or once there is an answer the rest of that. Raises: httpx.TransportError."""
        stream = self._stream
        if self._answer:
            asked = http.stream("GET", f"{options.url}/v1/streams/{self._answer}", headers={"Last-Event-ID": self._event})
        else:
            key = {"Idempotency-Key": stream.key} if stream.key else {}
            asked = http.stream("POST", f"{options.url}/v1/completions", json=body_of(options, stream), headers=key)
        async with asked as response:
            if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                await asyncio.sleep(_AGAIN_S)
            elif response.status_code != HTTPStatus.OK:
                text = (await response.aread()).decode(errors="replace")
                stream.error = f"HTTP {response.status_code}: {text[:_SHOWN_CHARS]}"
            else:
                await self._events(response)

    async def _events(self, response: httpx.Response) -> None:
        number = data = ""
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = value
            elif name == "data":
                data = value
            elif not line and data:  # the event is whole
                self._event = number or self._event
                if data.encode() != DONE:
                    self._take(msgspec.json.decode(data, type=_NumberedEvent))
                number = data = ""

    def _take(self, event: _NumberedEvent) -> None:
        stream = self._stream
        self._answer = self._answer or event.id
        stream.is_accepted = True
        if bytes(event.error):
            stream.error = f"error in the stream: {bytes(event.error).decode()[:_SHOWN_CHARS]}"
        for choice in event.choices:
            if choice.text:
                stream.pieces.append(choice.text)
                stream.arrivals_s.append(time.monotonic())
            stream.is_complete = stream.is_complete or choice.finish_reason in WHOLE
