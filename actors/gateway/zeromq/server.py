"""The ZeroMQ server: a public ROUTER that exchanges the messages of `messages.public` with client libraries.

Each client is one ROUTER identity with its streams. A message that cannot be decoded is counted and answered with Failed. The
window of a stream bounds the tokens that are sent but not yet confirmed by the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from actors.gateway.access.audited import audit_of
from actors.gateway.access.key_ring import KeyHolder, KeyRing
from actors.gateway.admission.admission import Admission, Arrival
from actors.gateway.admission.caller import caller_of_address
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.bodies.large_bodies import BodyReader
from actors.gateway.bodies.request_name import Origin
from actors.gateway.cache_reset.cache_reset import CacheReset
from actors.gateway.embeddings.embeddings import Embeddings
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.other_gateways.owners import Owners
from actors.gateway.requests.best_of import n_readable
from actors.gateway.requests.refusal_log import NO_CALL, NO_CALLER
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.settings import GatewaySettings
from actors.gateway.tenants.own_usage import own_summary
from actors.gateway.zeromq.cache_resets import ResetAsker, carry_out, is_operator
from actors.gateway.zeromq.call_tasks import CallTasks
from actors.gateway.zeromq.clients import PendingRequest, RefusalQueue, ZmqClient, ZmqClients, failed_of
from actors.gateway.zeromq.embeddings import send_vectors
from actors.gateway.zeromq.forwarded_stream import ForwardedStream
from actors.gateway.zeromq.keys import ZmqKeys
from actors.gateway.zeromq.large_messages import LargeMessages
from actors.gateway.zeromq.other_gateways import OtherGateways
from actors.gateway.zeromq.parse import Asked, field_in, have_of, new_request_of, origin_of, request_in
from actors.gateway.zeromq.public_socket import PublicSocket
from actors.gateway.zeromq.stream import ZmqStream
from messages import public
from messages.errors import WireError
from messages.wire.codec import Codec
from messages.wire.message import Message

_BEAT_S = 0.5


class ZmqServer:
    """The public ZeroMQ socket of one gateway. `summary` returns the JSON of /v1/metrics."""

    def __init__(
        self,
        settings: GatewaySettings,
        incarnation: int,
        admission: Admission,
        manager: RequestManager,
        owners: Owners,
        summary: Callable[[], Awaitable[dict[str, Any]]],
        caches: CacheReset,
        embeddings: Embeddings | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        self._settings, self._others, self._caches = settings, OtherGateways(owners), caches
        self._admission, self._manager, self._summary, self._embeddings = admission, manager, summary, embeddings
        self._codec: Codec[Message] = Codec((*public.ClientMessage.__args__, *public.GatewayMessage.__args__))
        self._clients = ZmqClients(public.Alive(incarnation=incarnation), self._send)
        self._pending: dict[str, PendingRequest] = {}  # by request id
        self._refusals = RefusalQueue(self._send)
        self._tasks = CallTasks(self._refuse)
        self._keys = ZmqKeys(keys, self._tasks, self._let_in)
        reader, are_owned = BodyReader(settings.max_length, settings.max_batch), keys is not None
        calls = self._tasks.spawn, self._understood, self._refuse, self._cancel
        self._large = LargeMessages(reader, admission.bodies, *calls, are_owned=are_owned)
        self._audit = audit_of(settings)
        self._loop = asyncio.get_running_loop()
        self._beat_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Bind the socket to its one or two addresses, and start to send Alive every 0.5 s."""
        settings = self._settings
        places = settings.zeromq_endpoint, settings.zeromq_tcp_endpoint, settings.zeromq_key_file
        self._socket = PublicSocket(*places, self._on_frames, self._pump_all)
        self._beat_timer = self._loop.call_later(_BEAT_S, self._beat)

    async def close(self) -> None:
        """Close the socket."""
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._tasks.cancel()
        await self._others.close()
        await self._socket.close()

    # -- receiving ------------------------------------------------------------------------------------------------

    def _on_frames(self, frames: list[bytes]) -> None:
        identity = frames[0]
        try:
            if len(frames) != 3:
                raise WireError(f"frames: expected 2, got {len(frames) - 1}")
            message = self._codec.decode(frames[1], frames[2])
        except WireError as error:
            self._manager.metrics.zeromq_undecodable.inc()
            self._refuse(identity, request_in(frames), Refusal("invalid", str(error), field=field_in(str(error))))
            return
        client = self._clients.heard(identity)
        match message:
            case public.KeyedMessage():
                address = self._socket.reader.sender_address
                at_own_socket = isinstance(message, public.CacheResetWanted) and is_operator(self._settings, address)
                self._keys.let_in(identity, message, len(frames[1]) + len(frames[2]), is_operator=at_own_socket)
            case public.Received():
                self._received(client, message)
            case public.CancelRequest():
                self._cancel(identity, message.request, has_left=message.has_left)
            case _:
                kind = type(message).__name__
                self._refuse(identity, "", Refusal("invalid", f"kind: expected a client's, got {kind}", field="kind"))

    def _let_in(self, identity: bytes, message: public.KeyedMessage, n_bytes: int, holder: KeyHolder | None) -> None:
        """Handle a message of `n_bytes`. `holder`: of its API key; None if none are asked for, and for an operator."""
        match message:
            case public.AnswersWanted() | public.Generate():
                self._asked(identity, message, n_bytes, holder)
            case public.ModelsWanted():
                names, max_length = [one.name for one in self._manager.models.all], self._settings.max_length
                self._send(identity, public.Models(call=message.call, names=names, max_length=max_length))
            case public.StatsWanted():
                self._tasks.spawn(identity, message.call, partial(self._stats, identity, message, holder))
            case public.CacheResetWanted():
                asker = ResetAsker.of(self._settings, self._socket.reader.sender_address, holder)
                send, models, settings = partial(self._send, identity), self._manager.models, self._settings
                builder_of, audit = self._admission.builder_of, self._audit
                work = partial(carry_out, self._caches, settings, models, builder_of, message, asker, audit, send)
                self._tasks.spawn(identity, message.call, work)
            case public.EmbeddingsWanted():
                send, bodies = partial(self._send, identity), self._admission.bodies
                work = partial(send_vectors, self._embeddings, bodies, message, n_bytes, send, self._caller(holder))
                self._tasks.spawn(identity, message.call, work)

    def _caller(self, holder: KeyHolder | None) -> bytes:
        return caller_of_address(self._socket.reader.sender_address) if holder is None else holder.caller

    def _asked(self, identity: bytes, message: Asked, n_bytes: int, holder: KeyHolder | None) -> None:
        caller = self._caller(holder)
        try:
            if not self._large.read_if_large(identity, message, n_bytes, caller):
                self._understood(identity, message, new_request_of(message, caller), n_bytes)
        except Refusal as refusal:
            self._refuse(identity, message.request, refusal, origin_of(message, caller))

    def _understood(self, identity: bytes, message: Asked, new: NewRequest, n_bytes: int) -> None:
        """A message was read: go on with a known request, look for it at other gateways, or begin it. Raises: Refusal."""
        known = self._admission.find_same_id(new)
        if known is not None:
            self._again(identity, message, known)
        elif message.is_repeated and self._others.are_there:
            self._tasks.spawn(identity, message.request, partial(self._search, identity, message, new, n_bytes))
        else:
            self._begin(identity, message, new, n_bytes)

    def _begin(self, identity: bytes, message: Asked, new: NewRequest, n_bytes: int) -> None:
        """Begin a request that nobody knows. Raises: Refusal."""
        if any(have_of(message)):
            detail = f"request: expected one that is known, got {message.request!r} with have = {message.have}"
            raise Refusal("not_found", detail, field="request")
        arrival = self._admission.begin(new, n_bytes)
        self._pending[message.request] = PendingRequest(identity)
        self._tasks.spawn(identity, message.request, partial(self._new, message.request, arrival))

    async def _search(self, identity: bytes, message: Asked, new: NewRequest, n_bytes: int) -> None:
        """Another gateway may have this request: pass its stream on, or begin the request here. Raises: Refusal.

        Meanwhile the client is told that this gateway is alive.
        """
        request_id = message.request
        stream = ForwardedStream(message, lambda message: self._send(identity, message))
        self._clients.add(identity, request_id, stream)
        try:
            link = await self._others.link_to_owner(request_id)
        except Refusal:
            if stream.is_closed:
                return
            self._clients.remove(identity, request_id, is_gone=False)
            raise
        if stream.is_closed:  # its client has left, or has sent it again
            return
        if link is not None:
            self._manager.metrics.reattached.inc()
            stream.open(link)
            return
        self._clients.remove(identity, request_id, is_gone=False)
        known = self._admission.find_same_id(new)
        if known is not None:
            self._again(identity, message, known)
        else:
            self._begin(identity, message, new, n_bytes)

    def _again(self, identity: bytes, message: Asked, known: Request | Arrival) -> None:
        """A request was sent again, on this connection or another: this connection is its client now. Raises: Refusal."""
        if isinstance(known, Arrival):
            self._pending[message.request].identity = identity
            return
        have, visible = have_of(message), n_readable(known)
        if len(have) > len(visible) or any(held > seen for held, seen in zip(have, visible, strict=False)):
            at_most = visible[0] if len(visible) == 1 else visible
            raise Refusal("invalid", f"have: expected at most {at_most}, got {message.have}", field="have")
        self._manager.metrics.reattached.inc()
        self._attach(identity, known, have)

    async def _new(self, request_id: str, arrival: Arrival) -> None:
        """Tokenise a new request and accept it. Meanwhile it may be sent again or cancelled, see `_pending`."""
        pending = self._pending[request_id]
        try:
            request = await self._admission.finish(arrival)
        except Refusal as refusal:
            terms, trace = arrival.new.terms, arrival.new.trace
            self._refuse(pending.identity, request_id, refusal, Origin(terms.trace_id, terms.caller, trace=trace))
            return
        finally:
            del self._pending[request_id]
        self._attach(pending.identity, request, ())
        if pending.is_cancelled:
            self._manager.cancel(request)

    def _attach(self, identity: bytes, request: Request, have: Sequence[int]) -> None:
        """Make a connection the client of a request, in place of an older one, and stream from tokens `have` on."""
        stream = ZmqStream(request, have, self._settings.stream_window_tokens, lambda message: self._send(identity, message))
        stream.left = lambda: self._manager.reader_left(request)
        self._clients.add(identity, request.spec.request, stream)
        if request.is_over:
            self._manager.finished.expect_client(request, self._loop.time())
        stream.pump()

    def _received(self, client: ZmqClient | None, message: public.Received) -> None:
        stream = client.streams.get(message.request) if client is not None else None
        if stream is None and self._keys.are_asked_for:
            return  # another connection reads this stream
        if stream is not None:
            stream.received(message.up_to)
        self._manager.finished.undelivered.confirm(message.request, message.up_to, self._loop.time())

    def _cancel(self, identity: bytes, request_id: str, *, has_left: bool = False) -> None:
        client = self._clients.heard(identity)
        stream = client.streams.get(request_id) if client is not None else None
        if has_left:
            if stream is not None:
                self._clients.remove(identity, request_id, is_gone=True)
            return
        pending = self._pending.get(request_id) or self._large.unread(request_id)
        if pending is not None and (pending.identity == identity or not self._keys.are_asked_for):
            pending.is_cancelled = True
            return
        if isinstance(stream, ForwardedStream):
            stream.cancel()
            return
        request = self._manager.find(request_id)
        is_foreign = stream is None and self._keys.are_asked_for  # whoever has shown its key reads the stream
        if request is None or request.spec.api != "zeromq" or is_foreign:
            detail = f"request: expected one that is known, got {request_id!r}"
            self._refuse(identity, request_id, Refusal("not_found", detail, field="request"))
            return
        if stream is None:
            self._attach(identity, request, n_readable(request))
        self._manager.cancel(request)

    async def _stats(self, identity: bytes, message: public.StatsWanted, holder: KeyHolder | None) -> None:
        found = await self._summary()
        shown = found if holder is None or holder.sees_all else own_summary(found, holder.tenant)
        self._send(identity, public.Stats(call=message.call, summary=msgspec.json.encode(shown).decode()))

    # -- sending --------------------------------------------------------------------------------------------------

    def _send(self, identity: bytes, message: Message) -> bool:
        body, arrays = self._codec.encode(message)
        return self._socket.reader.send([identity, body, arrays])

    def _refuse(self, identity: bytes, request: str, refusal: Refusal, origin: Origin | None = None) -> None:
        caller, call = (NO_CALLER, NO_CALL) if origin is None else (origin.caller, origin.call_trace)
        self._manager.refusals.note(refusal, "zeromq", request, caller=caller, call=call)
        self._refusals.send(identity, failed_of(request, refusal))

    def _pump_all(self) -> None:
        """The socket can send again: continue with refusals and with blocked streams."""
        self._refusals.flush()
        self._clients.pump()

    def _beat(self) -> None:
        self._clients.beat()
        self._pump_all()
        self._socket.poll()
        self._beat_timer = self._loop.call_later(_BEAT_S, self._beat)
