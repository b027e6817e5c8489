"""The client library's connection: one DEALER, its reconnects, and the conversation of every open stream and call on it.

Whenever the other side may have forgotten us (a new connection, a new incarnation, silence), every open Generate is said
again with the number of tokens that we hold. Duplicates are dropped by number; nothing is lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable

import zmq
from zmq.utils.monitor import parse_monitor_message

from messages import public, zmq_options
from messages.client_stream import StreamState
from messages.codec import Codec
from messages.faults import WireError
from messages.message import Message
from messages.zmq_reader import ZmqReader

_KINDS = (*public.ClientMessage.__args__, *public.FrontMessage.__args__)
_SILENCE_S = 2.0
_LOOK_S = 0.25
_RECEIVED_EVERY_TOKENS = 64
_MAX_UNSENT = 65_536
_RETRY_S = 0.1


class Connection:
    """Lives on one event loop."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._codec: Codec[Message] = Codec(_KINDS)
        self._streams: dict[str, tuple[StreamState, Callable[[], None]]] = {}
        self._calls: dict[str, tuple[Message, asyncio.Future[Message]]] = {}
        self._incarnation: int | None = None
        self._unsent: deque[list[bytes]] = deque()
        self._heard_s = self._loop.time()
        self.was_heard = False
        self._open()
        self._look_timer = self._loop.call_later(_LOOK_S, self._look)

    # -- streams and calls ----------------------------------------------------------------------------------------

    def start(self, state: StreamState, on_news: Callable[[], None]) -> None:
        """Say a Generate and follow its stream; `on_news` runs after each change."""
        self._touch()
        self._streams[state.request] = (state, on_news)
        self._send(state.say())

    def forget(self, state: StreamState) -> None:
        """Follow it no more."""
        self._streams.pop(state.request, None)

    def cancel(self, state: StreamState) -> None:
        """Ask for the end of a request."""
        state.is_cancel_wanted = True
        self.cancel_by_id(state.request)

    def cancel_by_id(self, request: str) -> None:
        """Ask for the end of any request."""
        self._send(public.CancelRequest(request=request))

    def taken(self, state: StreamState) -> None:
        """The caller has taken tokens: tell the front when it is worth a message."""
        if state.n_taken - state.n_said >= _RECEIVED_EVERY_TOKENS and not state.is_over:
            self._say_received(state)

    async def call(self, message: public.ModelsWanted | public.StatsWanted) -> Message:
        """Ask and wait for the answer; the caller sets the deadline."""
        self._touch()
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._calls[message.call] = (message, answer)
        try:
            self._send(message)
            return await answer
        finally:
            self._calls.pop(message.call, None)

    async def close(self) -> None:
        """Close the socket."""
        self._look_timer.cancel()
        await asyncio.sleep(0.005)  # the I/O thread writes last words
        self._shut()
        await self._loop.run_in_executor(None, self._context.term)

    # -- the socket -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        identity = b"c" + secrets.token_bytes(12)  # fresh: nobody takes over a half-dead connection's name
        self._socket = zmq_options.outgoing(self._context, self.endpoint, identity, zmq_options.PUBLIC_FRAME_BYTES)
        monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._n_connected = 0
        self._monitor = ZmqReader(monitor, self._on_event, lambda: None)
        self._reader = ZmqReader(self._socket, self._arrive, self._flush)

    def _shut(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
        self._reader.close()

    def _on_event(self, frames: list[bytes]) -> None:
        if parse_monitor_message(frames)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._n_connected += 1
            if self._n_connected > 1:  # another connection: whoever is there may not know us
                self._say_all_again()

    def _send(self, message: Message) -> None:
        if len(self._unsent) < _MAX_UNSENT:
            self._unsent.append(list(self._codec.encode(message)))
        self._flush()

    def _flush(self) -> None:
        while self._unsent and self._reader.send(self._unsent[0]):
            self._unsent.popleft()

    def _say_all_again(self) -> None:
        self._unsent.clear()
        for state, _ in self._streams.values():
            if not state.is_over:
                self._send(state.say())
                if state.is_cancel_wanted:
                    self._send(public.CancelRequest(request=state.request))
        for message, _ in self._calls.values():
            self._send(message)

    def _touch(self) -> None:
        """Silence only counts while something is open."""
        if not self._streams and not self._calls:
            self._heard_s = self._loop.time()

    def _look(self) -> None:
        """Now and then: silence means that the peer or the connection is gone."""
        self._look_timer = self._loop.call_later(_LOOK_S, self._look)
        self._reader.check()
        self._monitor.check()
        now_s = self._loop.time()
        is_open = bool(self._calls) or any(not state.is_over for state, _ in self._streams.values())
        if is_open and now_s - self._heard_s > _SILENCE_S:
            self._heard_s = now_s
            self._incarnation = None
            self._shut()
            self._open()
            self._say_all_again()

    # -- arriving -------------------------------------------------------------------------------------------------

    def _arrive(self, frames: list[bytes]) -> None:
        self._heard_s, self.was_heard = self._loop.time(), True
        if len(frames) != 2:
            return
        try:
            message = self._codec.decode(frames[0], frames[1])
        except WireError:
            return  # a newer server's word that this client does not know
        match message:
            case public.Alive():
                self._on_alive(message)
            case public.Models() | public.Stats():
                self._answer(message.call, message)
            case public.Failed():
                self._on_failed(message)
            case public.Accepted() | public.Chunk() | public.Finished():
                self._on_stream(message)

    def _on_alive(self, message: public.Alive) -> None:
        known, self._incarnation = self._incarnation, message.incarnation
        if known is not None and known != message.incarnation:
            self._say_all_again()
            return
        for state, _ in self._streams.values():  # one answer is a sign of life for all of them
            if not state.is_over:
                self._say_received(state)
                return

    def _on_stream(self, message: public.Accepted | public.Chunk | public.Finished) -> None:
        entry = self._streams.get(message.request)
        if entry is None:
            return
        state, on_news = entry
        match message:
            case public.Accepted():
                state.accepted = message
            case public.Chunk():
                state.on_chunk(message)
            case public.Finished():
                state.on_finished(message)
        on_news()

    def _on_failed(self, message: public.Failed) -> None:
        if message.request in self._calls:
            self._answer(message.request, message)
            return
        entry = self._streams.get(message.request)
        if entry is None:
            return
        state, on_news = entry
        if state.is_cancel_wanted and message.code == "not_found" and state.accepted is None:
            return  # the cancel overtook the request
        if state.on_failed(message):
            on_news()
        else:
            self._loop.call_later(_RETRY_S, self._say_again, message.request)

    def _say_again(self, request: str) -> None:
        entry = self._streams.get(request)
        if entry is not None and not entry[0].is_over:
            self._send(entry[0].say())

    def _answer(self, call: str, message: Message) -> None:
        entry = self._calls.get(call)
        if entry is not None and not entry[1].done():
            entry[1].set_result(message)

    def _say_received(self, state: StreamState) -> None:
        state.n_said = state.n_taken
        self._send(public.Received(request=state.request, up_to=state.n_taken))
