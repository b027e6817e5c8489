"""One HTTP connection as uvicorn drives it, with deadlines for the client and a limit on the number of connections.

A client that sends its request too slowly gets status 408 and is disconnected. One whose headers are too large gets status 431
and is disconnected. A client that reads nothing of its answer is disconnected without an answer. A client that connects above
the limit, or while this process can open no file, gets status 503; far above the limit its connection is closed at once.

While the answer to an accepted request is under way, the custodian holds a duplicate of the connection.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from actors.gateway.connections.caller_connections import EXTENSION, CallerConnections, ConnectionPlace
from actors.gateway.custody.hold import ANSWER_HOLD, Custodian, Hold
from actors.gateway.http.answer_hold import ConnectionAnswerHold, HoldableConnection
from actors.gateway.http.answers import chunk_sender, hangup
from actors.gateway.http.answers.hangup import Hangup
from actors.gateway.http.answers.unsent import n_in_kernel
from actors.gateway.http.browser_rules import granting, is_preflight, preflight
from actors.gateway.http.connection_limits import (
    MAX_HEAD_BYTES,
    ConnectionLimits,
    last_answer,
    no_file_left,
    refusing,
    too_large_head,
    too_many_connections,
)
from actors.gateway.http.upgrades import HttpOnlyParser
from actors.gateway.requests.refusals import Refusal
from messages.descriptors.reserve import process_reserve

_SPARE_CONNECTIONS = 256  # connections above the limit that still get a status 503
_MOST_IN_RESERVE = 6  # connections that do so while no file can be opened; the rest of the reserve is for links to other actors
_TLS_HELLO = b"\x16\x03"
_RESERVE_S = 1.0  # for which such a connection may be open


class Connection(HttpToolsProtocol, HoldableConnection):
    """uvicorn's protocol for one connection, with `ConnectionLimits`. `cut_if_slow` must be called about once a second."""

    def __init__(self, limits: ConnectionLimits, custodian: Custodian | None, **uvicorn_arguments: Any) -> None:
        """`custodian` None: nobody holds a duplicate of the connection."""
        super().__init__(**uvicorn_arguments)
        self.parser: Any = HttpOnlyParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets it: requests may be pipelined
        self._limits, self._custodian = limits, custodian
        self._hold: Hold | None = None
        self.place: ConnectionPlace | None = None  # among the connections of its caller; None: they are not counted
        self._since_s = 0.0  # when the wait for the rest of a request began; 0: no request is incomplete
        self._is_reading = False  # part of a request has arrived, but not all of it
        self._is_head_read = False
        self._head_bytes = 0  # received since the last end of headers, part of a body, or end of a request
        self._unread_bytes = 0  # at the last check
        self._unread_since_s = 0.0  # when `_unread_bytes` last became less, or was 0
        self._answered: Any = None  # uvicorn's state of the request that is answered now, or was last
        self.hangup = Hangup()
        self._closes_after_answer = False  # because the server shuts down
        self._is_answer_held = self._is_given = False  # the successor can go on with the present answer; with the connection
        self._is_last_answer = False  # the successor reads what comes after the present answer

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._since_s = self._made_s = self.loop.time()
        self.hangup.abort = transport.abort
        self._limit()

    def _limit(self) -> None:
        """Refuse every request of this connection, or cut it, if there are too many."""
        n_before, most = len(self.connections) - 1, self._limits.most_connections()
        if process_reserve().is_short:
            self._limits.on_cut("files")
            self.app: Any = self._refusing(no_file_left())
            self._limits.in_reserve.add(self)
            if len(self._limits.in_reserve) > _MOST_IN_RESERVE:
                self.transport.abort()
        elif n_before >= most:
            self._limits.on_cut("many")
            self.app = self._refusing(too_many_connections(most))
        elif self._limits.callers is not None:
            self._enter(self._limits.callers)
        if n_before >= most + _SPARE_CONNECTIONS:
            self.transport.abort()

    def _enter(self, callers: CallerConnections) -> None:
        """Take a place among the connections of this caller. After a TLS handshake the connection has one already."""
        self.place = self.place or self._new_place(callers)
        if self.place is None:
            self.transport.abort()
        elif self.place.refusal is not None:
            self.app = self._refusing(self.place.refusal)

    def _new_place(self, callers: CallerConnections) -> ConnectionPlace | None:
        return callers.enter(self.client[0] if self.client else "")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.place is not None:
            self.place.leave()
        self.pipeline.clear()
        self._limits.in_reserve.discard(self)
        # uvicorn tells the newest request alone; an answer that does not know would write to a transport that is closed
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        if self._hold is not None:
            self._hold.close()
        self.hangup.notify()

    def data_received(self, data: bytes) -> None:
        if not self._since_s and not self._is_answering:
            self._since_s, self._is_head_read = self.loop.time(), False
        self._head_bytes += len(data)
        if self._answered is None and data.startswith(_TLS_HELLO):  # uvicorn says that this is no HTTP, and not what it is
            structlog.get_logger().warning("client speaks TLS (https://) to a port of plain HTTP", client=str(self.client))
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES and self._is_reading and not self.transport.is_closing():
            self._cut("head", too_large_head("more"))

    def on_message_begin(self) -> None:
        self._is_reading, self._is_head_read = True, False
        if not self._since_s and not self._is_answering:
            self._since_s = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        parser = self.parser
        if parser.is_offered:
            return
        self._is_head_read = True
        if self._head_bytes > MAX_HEAD_BYTES:  # what has come may also hold a body, or other requests
            n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if n_bytes > MAX_HEAD_BYTES:
                self._limits.on_cut("head")
                self.app = self._refusing(too_large_head(str(n_bytes)))
        self._head_bytes = 0
        usual, origin = self.app, self._granted_origin()
        extensions: dict[str, Any] = {hangup.EXTENSION: self.hangup}
        has_chunks = parser.get_http_version() >= "1.1"
        if self._custodian is not None:
            keeps_alive = has_chunks and parser.should_keep_alive()
            extensions[ANSWER_HOLD] = ConnectionAnswerHold(self, self.url, keeps_alive, has_chunks, origin)
        if self.place is not None:
            extensions[EXTENSION] = self.place
        self.scope["extensions"] = extensions  # pyright: ignore[reportGeneralTypeIssues]
        super().on_headers_complete()
        self.app = usual
        granted = granting(origin) if origin else []
        if granted:
            self.cycle.default_headers = [*self.cycle.default_headers, *granted]
        extensions[chunk_sender.EXTENSION] = chunk_sender.OwnConnection(self.cycle, granted, has_chunks=has_chunks)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _granted_origin(self) -> str:
        """The origin of the web page that may read the answer to this request; "" if the request comes from no foreign page.
        A request that pages may not send is refused here, and a preflight request is answered here, not by the application.
        """
        try:
            origin = self._limits.browsers.allowed_origin(self.headers)
        except Refusal as refusal:
            self.app = self._refusing(refusal)
            return ""
        if origin and is_preflight(self.parser.get_method(), self.headers):
            self.app = Response(b"", 204, {name.decode(): value.decode("latin-1") for name, value in preflight(self.headers)})
        return origin

    def _refusing(self, refusal: Refusal) -> ASGIApp:
        self._limits.on_refused(refusal)
        return refusing(refusal)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.is_offered:
            return
        self._since_s, self._is_reading, self._head_bytes = 0.0, False, 0
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # a large body has paused it; a disconnect would not be noticed

    def on_response_complete(self) -> None:
        self._is_answer_held = False
        if self._hold is not None:
            self._hold.let_go()
        if self._is_reading and not self._since_s:
            self._since_s = self.loop.time()
        super().on_response_complete()
        if self._closes_after_answer:
            self.transport.close()
        elif self._is_last_answer and not self.transport.is_closing():
            self.flow.pause_reading()
            if not self.transport.get_write_buffer_size():  # otherwise the successor writes what is left of the answer
                self._give()

    def shutdown(self) -> None:
        """Close after the present answer. A head that is not written yet gets no `Connection: close`: a successor computes its
        length from the hold alone."""
        if self._is_answering and not self.cycle.response_started:
            self._closes_after_answer = True
        else:
            super().shutdown()

    @property
    def has_request(self) -> bool:
        return self._hold is not None and self._hold.has_request

    def note_held(self) -> None:
        """The answer that is under way is held: a successor can go on with it."""
        self._is_answer_held = True

    @property
    def _is_answering(self) -> bool:
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    def hold(self) -> Hold | None:
        """The hold of this connection, made when it is first asked for; None without a custodian."""
        if self._hold is None and self._custodian is not None:
            fd = self.transport.get_extra_info("socket").fileno()
            self._hold = Hold(self._custodian, secrets.token_hex(8), fd, self.transport)
        return self._hold

    def hand_over(self) -> bool:
        """Leave this connection to the next incarnation, without closing it. Returns False if it must be waited for: a request
        is being read, or an answer that the successor cannot go on with is being computed or sent. Nothing is read behind an
        answer that it can go on with, which may yet end here: a request that is read here and nowhere noted would be lost."""
        if self._is_given or self.transport.is_closing():
            return True
        if self._is_answering:
            if self._is_answer_held and self.is_alone:
                self._is_last_answer = True
                self.flow.pause_reading()
            return self._is_answer_held
        if self._is_reading or self._head_bytes or self.transport.get_write_buffer_size():
            return False
        self._give()
        return True

    def _give(self) -> None:
        """Read nothing more: the connection waits for its next request, which the successor reads."""
        self.flow.pause_reading()
        self._unset_keepalive_if_required()
        hold = self.hold()
        self._is_given = hold is None or hold.begin_idle()

    @property
    def is_alone(self) -> bool:
        """True if nothing has been read after the request that is answered now."""
        return not (self.pipeline or self._is_reading)

    @property
    def n_unread(self) -> int:
        """Bytes that the client's machine has not confirmed, plus one while an answer is computed. 0 for one without an end."""
        cycle = self.cycle
        if chunk_sender.is_endless(cycle):
            return 0
        is_answering = cycle is not None and not (cycle.more_body or cycle.response_complete or cycle.disconnected)
        return self.transport.get_write_buffer_size() + n_in_kernel(self.transport) + is_answering

    def cut_if_slow(self, now_s: float) -> None:
        """Disconnect the client if it has passed a deadline. Also call it while the connection closes, which waits for it."""
        if self in self._limits.in_reserve and now_s - self._made_s > _RESERVE_S:
            self.transport.abort()
            return
        if self._is_unread_too_long(now_s):
            self._limits.on_cut("unread")
            self.transport.abort()
            return
        limit_s = self._limits.body_s if self._is_head_read else self._limits.head_s
        if not self._since_s or now_s - self._since_s <= limit_s or self.transport.is_closing():
            return
        what = "body" if self._is_head_read else "headers"
        self._cut("slow", Refusal("request_timeout", f"{what}: expected all of it within {limit_s:g} s, got less"))

    def _cut(self, why: str, refusal: Refusal) -> None:
        """Disconnect the client, and tell it why unless an answer is on its way."""
        self._limits.on_cut(why)
        self._limits.on_refused(refusal)
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(last_answer(refusal))
        self.transport.close()

    def _is_unread_too_long(self, now_s: float) -> bool:
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        if not before or self._unread_bytes < before:
            self._unread_since_s = now_s
        return bool(self._unread_bytes) and now_s - self._unread_since_s > self._limits.unread_s
