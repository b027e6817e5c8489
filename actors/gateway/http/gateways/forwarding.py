"""Forwards a call to the gateway that owns its request, and brings the answer back.

The owner's bytes are a function of its journal. So when the owner dies, its next incarnation is asked for the same response,
and the chunks that the client has already are skipped. When this gateway dies, the custodian has the client's connection, and
the next incarnation asks the owner for the same response and skips the bytes that the client has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors.gateway.custody.hold import answer_hold
from actors.gateway.http.answers.chunk_sender import chunk_sender, cut
from actors.gateway.http.answers.hangup import abort, nothing, on_stop, watch_hangup
from actors.gateway.http.answers.stream_bytes import Begun
from actors.gateway.http.answers.stream_events import run_in
from actors.gateway.http.errors import error_response
from actors.gateway.http.gateways.forwarded_call import LEAVE, ForwardedCall
from actors.gateway.other_gateways.questions import RETRY_S, fetched
from actors.gateway.other_gateways.unix_http import LOST, ResponseHead, read_chunk, read_head
from actors.gateway.requests.refusals import Refusal, stopped

_OWNER_AWAY_S = 60.0  # longest time without any byte of the owner's while it cannot be reached
_NOT_KNOWN = (404, 410)
_NOT_READ_S = 1.0  # so long may a busy owner not have read yet what an earlier incarnation of this gateway has sent it
_CUT_S = 1.0  # from the end of a connection to the news of it
_COMMENT = b":"  # begins a line that is no event
NOTHING = Begun()


class Forwarded:
    """An ASGI answer: that of the gateway which listens at `socket_path`."""

    def __init__(
        self,
        socket_path: str,
        call: ForwardedCall,
        longest_s: float,
        cut: Callable[[], None] | None = None,
        *,
        begun: Begun = NOTHING,
    ) -> None:
        """`longest_s`: for the whole answer. For a call of an earlier incarnation: `cut` ends the client's connection if the
        response cannot be made again, and `begun` says what the client has of it.
        """
        self._path, self._call, self._longest_s = socket_path, call, longest_s
        self._cut, self._begun = cut, begun
        self._n_sent = 0  # chunks that the client has
        self._run = begun.run  # of the request, as far as the ids of these chunks say
        self._has_begun = False
        self._unread_until_s = 0.0
        self._writer: asyncio.StreamWriter | None = None
        self._has_left = False
        self._is_stopping = False  # this gateway ends
        self._is_gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = watch_hangup(scope, receive, self._leave)
        on_stop(scope, self._stop)
        if (hold := answer_hold(scope)) is not None:
            hold.begin(self._call.request, self._call.start, self._run)
        try:
            async with asyncio.timeout(self._longest_s):
                await self._answer(scope, receive, send)
        except TimeoutError:
            structlog.get_logger().warning("forwarded call not answered in time", request=self._call.request, owner=self._path)
            await self._give_up(_away("has not answered in time"), scope, receive, send)
        except asyncio.CancelledError:  # by uvicorn: this gateway ends
            if self._has_begun:
                raise
            await self._give_up(stopped(), scope, receive, send)
        finally:
            watch.cancel()
            on_stop(scope, nothing)

    def _stop(self) -> None:
        """This gateway ends: what the owner still sends is passed on, but an owner that ends too is not waited for."""
        self._is_stopping = True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        until_s, self._unread_until_s = loop.time() + _OWNER_AWAY_S, loop.time() + _NOT_READ_S
        while not self._has_left:
            try:
                async with self._connected() as reader:
                    head = await read_head(reader)
                    if await self._pass_on(head, reader, scope, receive, send):
                        return
                    if self._is_unread(head):
                        await asyncio.sleep(RETRY_S)
                    until_s = loop.time() + _OWNER_AWAY_S
            except LOST:
                if self._is_stopping:
                    await self._end(scope, receive, send)
                    return
                if loop.time() > until_s:
                    break
                await asyncio.sleep(RETRY_S)
        await self._give_up(_away("does not answer"), scope, receive, send)

    async def _end(self, scope: Scope, receive: Receive, send: Send) -> None:
        """This gateway ends before the answer does."""
        if self._has_begun:
            cut(scope)
        else:
            await self._give_up(stopped(), scope, receive, send)

    async def _give_up(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the call if the client has nothing of its answer; cut a connection on which an earlier process began it."""
        if self._cut is not None:
            await self._end_connection(self._cut, scope)
        elif not (self._has_begun or self._has_left):
            await error_response(refusal)(scope, receive, send)

    async def _pass_on(
        self, head: ResponseHead, reader: asyncio.StreamReader, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Send what the client does not have yet; returns True at the end of the answer. Raises: one of `LOST`."""
        if head.length >= 0:
            body = await reader.readexactly(head.length)
            if self._is_unread(head):
                return False
            if self._cut is not None and (self._begun.is_something or head.status in _NOT_KNOWN):
                await self._end_connection(self._cut, scope)
            elif not self._has_begun:  # otherwise the stream cannot go on, and its connection is cut
                response = Response(body, head.status)
                response.raw_headers = head.headers
                await response(scope, receive, send)
            return True
        sender, hold = chunk_sender(scope, send), answer_hold(scope)
        if not self._has_begun:
            self._has_begun = True
            await sender.begin(head.headers)
        n_read, asks = 0, True
        while (chunk := await read_chunk(reader)) is not None:
            n_read += 1
            if n_read > self._n_sent:
                run = run_in(chunk)
                if asks and chunk.startswith(_COMMENT):
                    run, asks = await self._run_of_ping()
                self._n_sent = n_read
                if run > self._run:
                    self._run = run
                    if hold is not None:
                        hold.note_run(run)
                        await asyncio.sleep(0)  # the custodian is told at the end of this turn, and then bytes may be written
                await sender.send([chunk])
        await sender.end(b"")
        return True

    def _is_unread(self, head: ResponseHead) -> bool:
        """True if an owner that lives may know the request in a moment: it has the call, and nothing of an answer has come."""
        is_new = self._cut is not None and not (self._begun.is_something or self._has_begun)
        return is_new and head.status == 404 and asyncio.get_running_loop().time() < self._unread_until_s

    async def _end_connection(self, cut: Callable[[], None], scope: Scope) -> None:
        """Cut the client's connection, and wait until the server of this gateway knows it: it misses no answer then. The server
        would not notice the cut while it reads nothing, as after a pipelined request, so it is told."""
        cut()
        abort(scope)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CUT_S):
                await self._is_gone.wait()

    async def _run_of_ping(self) -> tuple[int, bool]:
        """The run of a ping, which has no id, and whether that of the next one may be another one."""
        try:
            answer = await fetched(self._path, self._call.run())
        except Refusal:
            return self._run, True
        if answer.status_code != 200:  # the owner is of the last release, or has forgotten the request
            return self._run, False
        run, present = map(int, bytes(answer.body).split())
        return run, run != present

    def _leave(self) -> None:
        """The client has left: tell the owner, and close the connection to it."""
        self._has_left = True
        self._is_gone.set()
        if self._writer is not None:
            self._writer.write(LEAVE)
            self._writer.close()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncio.StreamReader]:
        """A connection to the owner over which the call has been sent."""
        begun = Begun(n_chunks=self._n_sent, run=self._run) if self._n_sent else self._begun
        is_first = self._call.first and not (self._has_begun or begun.is_something)
        reader, self._writer = await asyncio.open_unix_connection(self._path)
        try:
            self._writer.write(self._call.first if is_first else self._call.again(begun))
            yield reader
        finally:
            self._writer.close()


def _away(what: str) -> Refusal:
    return Refusal("unavailable", f"the gateway that owns this request {what}", retry_after_s=1.0)
