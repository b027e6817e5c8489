"""ASGI answers to a generation request: a stream of server-sent events, or one body when the request is over.

Each answer waits on one future, and sends everything that has become visible since it last sent. A client that disconnects is
noticed at once; a client that stops reading stops only its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors.gateway.dispatch.request_desk import RequestDesk
from actors.gateway.http.errors import error_body, error_response, refusal_of
from actors.gateway.http.hangup import watch_hangup
from actors.gateway.http.openai_chunks import DONE, ChunkWriter
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.request import Request

_SETTLE_S = 1.0  # longest wait before the headers of a stream, so that an early failure can still get an error status
_SLOW_CLIENT_S = 120.0  # time to read the rest of the answer after the request's own deadline
_PING = b": waiting\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def _failure(request: Request) -> Response | None:
    """The error response of a request if one of its sequences has visibly failed; else None."""
    for sequence in request.sequences:
        if sequence.is_end_visible and sequence.ended is not None and sequence.ended.is_failure:
            return error_response(refusal_of(sequence.ended), {"X-Request-Id": request.order.request})
    return None


class _Answer:
    """What both kinds of answer share: it closes the reader at the end, notices a disconnect, and keeps a deadline."""

    def __init__(self, desk: RequestDesk, request: Request, longest_s: float) -> None:
        self._desk, self._longest_s = desk, longest_s
        self.request, self.reader = request, Reader(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = watch_hangup(scope, receive, self.reader.leave)
        try:
            async with asyncio.timeout(self._longest_s + _SLOW_CLIENT_S):
                await self._answer(scope, receive, send)
            if not self.reader.has_left:
                # a drain still waits for what the connection has not sent, see `Connection.n_unread`
                self._desk.undelivered.remove(self.request.order.request)
        except (OSError, TimeoutError):
            self.reader.has_left = True
        finally:
            watch.cancel()
            self.reader.close()
            self._desk.reader_left(self.request)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("each subclass overrides this")


class EventStream(_Answer):
    """Streams one request as server-sent events, with a comment line after every `ping_s` of silence.

    A request that fails before its first token gets an error status; one that fails later, an error event before [DONE].
    """

    def __init__(self, desk: RequestDesk, request: Request, writer: ChunkWriter, longest_s: float, ping_s: float) -> None:
        super().__init__(desk, request, longest_s)
        self._writer, self._ping_s = writer, ping_s

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = self.reader
        await reader.wait_settled(_SETTLE_S)
        failure = _failure(self.request)
        if failure is not None and not self.request.n_generated:
            await failure(scope, receive, send)
            return
        headers = [*_STREAM_HEADERS, (b"x-request-id", self.request.order.request.encode("latin-1"))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        first = reader.take()
        await self._send(send, self._writer.write(first) if first else self._writer.opening())
        while not reader.is_done and not reader.has_left:
            pieces = await reader.wait_pieces(self._ping_s)
            if pieces:
                await self._send(send, self._writer.write(pieces))
            elif not reader.has_left:
                await self._send(send, _PING)
        if reader.has_left:
            return
        failure = _failure(self.request)
        last = self._writer.closing() if failure is None else b"data: " + bytes(failure.body) + b"\n\n" + DONE
        await send({"type": "http.response.body", "body": last})

    async def _send(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})


class WholeAnswer(_Answer):
    """Sends the body that `render` returns when the request is over, or an error status if it failed or was cancelled."""

    def __init__(self, desk: RequestDesk, request: Request, render: Callable[[], bytes], longest_s: float) -> None:
        super().__init__(desk, request, longest_s)
        self._render = render

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.reader.wait_end()
        if self.reader.has_left:
            return
        response = _failure(self.request)
        if response is None and any(s.ended is not None and s.ended.reason == "cancelled" for s in self.request.sequences):
            body = error_body(499, "the request was cancelled", name="cancelled")
            response = Response(msgspec.json.encode(body), 499, media_type="application/json")
        if response is None:
            headers = {"X-Request-Id": self.request.order.request}
            response = Response(self._render(), 200, headers, media_type="application/json")
        await response(scope, receive, send)
