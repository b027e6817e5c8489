"""Messages of ZeroMQ clients with a large JSON body, which is read in turns of the event loop, as over HTTP.

    takes -> count its bytes -> price and decode the body, piece by piece -> make the request of it -> `understood`

Meanwhile the message may be sent again, on this connection or another, or be cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.bodies.large_bodies import SMALL_BYTES, BodyReader
from actors.gateway.bodies.request_name import Origin
from actors.gateway.requests.refusals import Refusal
from actors.gateway.zeromq.clients import PendingRequest
from actors.gateway.zeromq.parse import BODIES, Asked, new_request_of, origin_of
from messages import public

_IDS_FIELDS = {"chat": "", "completion": "prompt"}


@dataclass(frozen=True)
class LargeMessage:
    """One message with a large body. `n_bytes`: of the message. `caller`: the digest of who has sent it."""

    asked: public.AnswersWanted
    n_bytes: int
    caller: bytes

    def is_same(self, asked: public.AnswersWanted) -> bool:
        """True if this is the same message."""
        return (asked.api, asked.body) == (self.asked.api, self.asked.body)


class LargeMessages:
    """The large messages of one gateway's clients.

    `understood`: called with the newest connection that has sent a message, the message and its request; may raise Refusal.
    `refuse`: called with the newest connection, the id and a refusal. `cancel`: called with both, after `understood`.
    `are_owned`: a message that comes again from another caller is another request.
    """

    def __init__(
        self,
        reader: BodyReader,
        budget: BodyBudget,
        spawn: Callable[[bytes, str, Callable[[], Awaitable[None]]], None],
        understood: Callable[[bytes, Asked, NewRequest, int], None],
        refuse: Callable[[bytes, str, Refusal, Origin], None],
        cancel: Callable[[bytes, str], None],
        *,
        are_owned: bool = False,
    ) -> None:
        self._reader, self._budget, self._spawn = reader, budget, spawn
        self._understood, self._refuse, self._cancel, self._are_owned = understood, refuse, cancel, are_owned
        self._unread: dict[str, tuple[PendingRequest, LargeMessage]] = {}  # by request id

    def unread(self, request_id: str) -> PendingRequest | None:
        """The request whose message is being read; None if there is none with this id."""
        found = self._unread.get(request_id)
        return found[0] if found is not None else None

    def read_if_large(self, identity: bytes, asked: Asked, n_bytes: int, caller: bytes) -> bool:
        """Begin to read this message if it is large. Returns False if it is small. One that is being read and comes again makes
        `identity` its client. Raises: Refusal for another one with the same id."""
        known = self._unread.get(asked.request)
        if known is not None:
            is_same = isinstance(asked, public.AnswersWanted) and known[1].is_same(asked)
            if not is_same or (self._are_owned and known[1].caller != caller):
                other = "belongs to another request; expected the same body, byte for byte, or another id"
                raise Refusal("conflict", f"request: {asked.request!r} {other}", field="request")
            known[0].identity = identity
            return True
        if not isinstance(asked, public.AnswersWanted) or len(asked.body) <= SMALL_BYTES:
            return False
        pending = PendingRequest(identity)
        message = LargeMessage(asked, n_bytes, caller)
        self._unread[asked.request] = pending, message
        self._spawn(identity, asked.request, lambda: self._read(pending, message))
        return True

    async def _read(self, pending: PendingRequest, message: LargeMessage) -> None:
        asked = message.asked
        try:
            new = await self._request_of(message)
        except Refusal as refusal:
            self._refuse(pending.identity, asked.request, refusal, origin_of(asked, message.caller))
            return
        finally:
            del self._unread[asked.request]
        try:
            self._understood(pending.identity, asked, new, message.n_bytes)
        except Refusal as refusal:
            self._refuse(pending.identity, asked.request, refusal, origin_of(asked, message.caller))
            return
        if pending.is_cancelled:
            self._cancel(pending.identity, asked.request)

    async def _request_of(self, message: LargeMessage) -> NewRequest:
        """The request in a message, whose bytes count against the budget meanwhile. Raises: Refusal."""
        asked, counted = message.asked, self._budget.count(message.n_bytes, caller=message.caller)
        try:
            body = await self._reader.read(asked.body, BODIES[asked.api], _IDS_FIELDS[asked.api])
            await asyncio.sleep(0)  # the digest of 16 MiB takes 15 ms
            return new_request_of(asked, message.caller, body)
        finally:
            self._budget.release(counted, message.caller)
