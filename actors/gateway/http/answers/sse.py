"""ASGI answers to a generation request: a stream of events, or one body when the request is over.

Each answer waits on one future, and sends everything that has become visible since it last sent. A client that disconnects is
noticed at once; a client that stops reading stops only its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors.gateway.bodies.fields.unknown_fields import IGNORED_HEADER
from actors.gateway.custody.hold import answer_hold
from actors.gateway.http.answers.chunk_sender import ChunkSender, chunk_sender, cut
from actors.gateway.http.answers.hangup import may_return, nothing, on_stop, watch_hangup
from actors.gateway.http.answers.inside_time import inside_s
from actors.gateway.http.answers.load_headers import load_headers
from actors.gateway.http.answers.stream_bytes import stream_headers
from actors.gateway.http.answers.stream_events import StreamEvents, failure_of
from actors.gateway.http.errors import error_response, refusal_of
from actors.gateway.http.formats.registry import format_of
from actors.gateway.http.request_identity import correlation_id_of
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.refusals import stopped
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.requests.work_done import server_timing

_SETTLE_S = 1.0  # longest wait before the headers of a stream, so that an early failure can still get an error status
_TURN_BYTES = 65_536  # of a whole body that are made in one turn of the event loop: 1 to 3 ms
_SLOW_CLIENT_S = 120.0  # time to read the rest of the answer after the request's own deadline


def _failure(request: Request, shown_id: str = "") -> Response | None:
    """The error response of a request if one of its sequences has visibly failed; else None. `shown_id`: see `_shown_id`."""
    ended = failure_of(request)
    if ended is None:
        return None
    shown_id = shown_id or request.spec.shown_id
    return error_response(refusal_of(ended), {"X-Request-Id": shown_id}, format_of(request.spec.api).error)


def _shown_id(spec: RequestSpec, scope: Scope) -> str:
    """What a whole answer has as its header X-Request-Id. A call that has joined a request may have one of its own."""
    own = correlation_id_of(dict(scope.get("headers", ()))) if spec.is_resumable else ""
    return own or spec.shown_id


async def join_pieces(pieces: Iterable[bytes]) -> bytes:
    """All pieces in one. The event loop gets a turn after an empty piece, and after each `_TURN_BYTES`."""
    made, n_bytes = [], 0
    for piece in pieces:
        made.append(piece)
        n_bytes += len(piece)
        if not piece or n_bytes >= _TURN_BYTES:
            await asyncio.sleep(0)
            n_bytes = 0
    return b"".join(made)


class _Answer:
    """What both kinds of answer share: it closes the reader at the end, notices a disconnect, and keeps a deadline.

    `start`: of a stream, the id of the last event that the client has; 0: it has none.
    """

    def __init__(self, manager: RequestManager, request: Request, longest_s: float, start: int = -1) -> None:
        self._manager, self._longest_s, self._start = manager, longest_s, start
        self.request, self.reader = request, Reader(request, lasting=manager.lasting)
        self._has_begun = False  # to send
        self._is_too_late = False
        self._is_cut = False  # by the end of this gateway: the next start of the server goes on
        self._is_stopped = False  # by ourselves, because no more tokens come

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, task, watch = asyncio.get_running_loop(), asyncio.current_task(), watch_hangup(scope, receive, self._leave)
        assert task is not None, "ASGI calls run in tasks"
        timer = loop.call_later(self._longest_s + _SLOW_CLIENT_S, self._give_up, task)
        on_stop(scope, partial(self._stop, task))
        is_at_once = self.request.is_at_once
        if not is_at_once and (hold := answer_hold(scope)) is not None:
            hold.begin(self.request.spec.request, self._start)
        try:
            if not is_at_once:
                await asyncio.sleep(0)  # the custodian is told at the end of this turn, and then bytes may be written
            await self._answer(scope, receive, send)
            if not self.reader.has_left:
                # a drain still waits for what the connection has not sent, see `Connection.n_unread`
                self._manager.finished.delivered(self.request, loop.time())
                if self.request.spec.is_from_cache and (took_s := inside_s(scope)) is not None:
                    self._manager.equals.hit_s.observe(took_s)
        except OSError:
            self.reader.has_left = True
        except asyncio.CancelledError:
            if self._is_too_late:
                self.reader.has_left = True
            elif self._has_begun or self.reader.has_left:
                self._is_cut = not self.reader.has_left
                if not self._is_stopped:
                    raise
                cut(scope)
            else:  # by uvicorn: the gateway ends
                await error_response(stopped(), {"X-Request-Id": self.request.spec.shown_id})(scope, receive, send)
        finally:
            timer.cancel()
            watch.cancel()
            on_stop(scope, nothing)
            self.reader.close()
            self._manager.reader_left(self.request, may_return=self._is_cut or may_return(scope))

    def _leave(self) -> None:
        """The client has left."""
        self.reader.leave()

    def _give_up(self, task: asyncio.Task[None]) -> None:
        """The client has had its time: end the answer. `asyncio.timeout` does the same and takes seven times as long."""
        self._is_too_late = True
        task.cancel()

    def _stop(self, task: asyncio.Task[None]) -> None:
        """This gateway ends. What is finished is sent to its end; nothing more comes for the rest, so nobody waits for it."""
        if not self._is_over:
            self._is_stopped = True
            task.cancel()

    @property
    def _is_over(self) -> bool:
        return self.request.is_over

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("each subclass overrides this")


class _HeldRun:
    """Tells the hold of an answer's connection to which run of its request the newest part belongs.

    It is told when the first event of that run is about to be written, because then the run is in the journal. A run that the
    journal does not have ends the connection (`stream_bytes.py`), and a process may die before its run is recorded.
    """

    def __init__(self, scope: Scope) -> None:
        self._hold, self._run = answer_hold(scope), 0

    def is_new(self, run: int) -> bool:
        """What is written from now on belongs to this run. Returns True if the hold is told, at the end of this turn."""
        if run == self._run or self._hold is None:
            return False
        self._run = run
        self._hold.note_run(run)
        return True


class EventStream(_Answer):
    """Streams one request: the events of `StreamEvents`, each in a chunk of its own. After every `ping_s` of
    silence the request manager is asked for a ping.

    A request that fails before its first token gets an error status; one that fails later, an error event.
    """

    def __init__(
        self, manager: RequestManager, request: Request, events: StreamEvents, longest_s: float, ping_s: float
    ) -> None:
        super().__init__(manager, request, longest_s, events.start)
        self._events, self._ping_s = events, ping_s
        self._error: Exception | None = None  # of `_send_now`

    def _send_now(self, sender: ChunkSender) -> bool:
        """Send what is new, in the turn of the event loop in which it becomes visible. False: the task has to do it."""
        if not sender.can_send_now:
            return False
        try:
            if (events := self._events.take_few()) is None:
                return False
            sender.send_now(events)
        except Exception as error:  # it is this stream's alone: whoever publishes goes on with the others
            self._error = error
            return False
        return True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = self.reader
        await reader.wait_settled(_SETTLE_S)
        failure = _failure(self.request)
        if failure is not None and not self.request.n_generated and not self._events.start:
            self._has_begun = True
            await failure(scope, receive, send)
            return
        self._has_begun, sender, run = True, chunk_sender(scope, send), _HeldRun(scope)
        await sender.begin(stream_headers(self.request, self._events.content_type))
        send_now = partial(self._send_now, sender)
        while not reader.has_left:
            if self._events.has_more:
                await asyncio.sleep(0)
            elif not await reader.wait_update(self._ping_s, send_now):
                if not reader.has_left:
                    self._manager.ping(self.request)
                continue
            if self._error is not None:
                raise self._error
            events = self._events.take_some()
            if run.is_new(self._events.run):
                await asyncio.sleep(0)  # the custodian is told at the end of this turn, and then bytes may be written
            if self._events.is_done:
                last = events.pop()
                await sender.send(events)
                await sender.end(last)
                return
            await sender.send(events)


class WholeAnswer(_Answer):
    """Sends the body when the request is over, or an error status if it failed or was cancelled. `render` makes the body in
    pieces; after an empty piece the event loop gets a turn."""

    def __init__(
        self, manager: RequestManager, request: Request, render: Callable[[], Iterable[bytes]], longest_s: float
    ) -> None:
        super().__init__(manager, request, longest_s)
        self._render = render
        self._requests = [request]

    async def _wait_end(self) -> None:
        """Wait until the answer is there, or the client has left."""
        await self.reader.wait_end()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._wait_end()
        if self.reader.has_left:
            return
        shown_id = _shown_id(self.request.spec, scope)
        response = next(filter(None, (_failure(one, shown_id) for one in self._requests)), None)
        sequences = [sequence for request in self._requests for sequence in request.sequences]
        if response is None and any(s.ended is not None and s.ended.reason == "cancelled" for s in sequences):
            body = format_of(self.request.spec.api).error(499, "the request was cancelled", "", "cancelled")
            response = Response(msgspec.json.encode(body), 499, media_type="application/json")
        if response is None:
            limits = self.request.spec.limit_headers
            headers = {"X-Request-Id": shown_id, "Server-Timing": server_timing(self.request), **limits}
            if self.request.spec.ignored_fields:
                headers[IGNORED_HEADER] = self.request.spec.ignored_fields
            found = {request.spec.cache_status for request in self._requests}
            if "" not in found:
                headers["X-Cache"] = min(found)  # "coalesced" if one of them is; of several, none is "semantic"
            if fallback := next((one.spec.shown_fallback for one in self._requests if one.spec.fallback), ""):
                headers["X-Fallback-Model"] = fallback
            if self.request.spec.similarity:
                headers["X-Cache-Similarity"] = self.request.spec.shown_similarity
            headers |= load_headers(self.request.spec) | self.request.spec.trace_headers
            response = Response(await join_pieces(self._render()), 200, headers, media_type="application/json")
        self._has_begun = True
        await response(scope, receive, send)


class JointAnswer(WholeAnswer):
    """One body for several requests, when all of them are over."""

    def __init__(
        self, manager: RequestManager, requests: Sequence[Request], render: Callable[[], Iterable[bytes]], longest_s: float
    ) -> None:
        super().__init__(manager, requests[0], render, longest_s)
        self._requests = list(requests)
        self._others = [Reader(request) for request in requests[1:]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        retained, batch = self._manager.finished.retained, self.request.spec.request
        retained.hold(batch, [request.spec.request for request in self._requests])
        try:
            await super().__call__(scope, receive, send)
            for other in () if self.reader.has_left else self._others:
                self._manager.finished.delivered(other.request, asyncio.get_running_loop().time())
        finally:
            retained.release(batch, asyncio.get_running_loop().time())
            for other in self._others:
                other.close()
                self._manager.reader_left(other.request, may_return=may_return(scope))

    @property
    def _is_over(self) -> bool:
        return all(request.is_over for request in self._requests)

    def _leave(self) -> None:
        for reader in (self.reader, *self._others):
            reader.leave()

    async def _wait_end(self) -> None:
        for reader in (self.reader, *self._others):
            await reader.wait_end()
