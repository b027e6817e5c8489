"""A stream whose request is at another gateway: passes the messages of that gateway on to the client, and the client's to it.

The other gateway bounds the tokens in flight by what the client has confirmed, as for a client of its own. When it dies, the
link asks its next incarnation for the stream from the next token on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from actors.gateway.zeromq.parse import Asked, have_of
from messages import public
from messages.client.link import ClientLink, OpenCall
from messages.wire.message import Message


class ForwardedStream(OpenCall):
    """One stream of a ZeroMQ client. `open` begins it, once it is known which gateway has the request.

    Args:
        asked: what the client has sent.
        send: sends a message to the client; False when its pipe is full.
    """

    def __init__(self, asked: Asked, send: Callable[[Message], bool]) -> None:
        self._asked, self._send = asked, send
        self._have = have_of(asked)  # of each answer; those that are missing at its end have nothing
        self._confirmed = sum(self._have)
        self._n_answers, self._ended = 1, set[int]()
        self._unsent: deque[Message] = deque()
        self._link: ClientLink | None = None
        self._is_cancelled = self._is_over = False
        self.is_closed = False
        self.is_blocked = False
        self.on_done: Callable[[], None] = lambda: None  # set by `ZmqClients`

    def open(self, link: ClientLink) -> None:
        """Ask the gateway behind `link` for the stream."""
        self._link = link
        link.open(self._asked.request, self)

    # -- the other gateway's side ---------------------------------------------------------------------------------

    def message(self) -> Message:
        have = self._have[0] if isinstance(self._asked, public.Generate) else list(self._have)
        return msgspec.structs.replace(self._asked, have=have, is_repeated=True)

    def handle(self, message: public.GatewayMessage) -> None:
        match message:
            case public.Accepted():
                self._n_answers = int(message.n_answers)
                if self._is_cancelled:
                    self.cancel()
            case public.Chunk():
                self._note(int(message.index), int(message.first) + len(message.ids))
            case public.Finished():
                self._ended.add(int(message.index))
                self._is_over = len(self._ended) >= self._n_answers
            case public.Failed():
                self._is_over = True
        self._unsent.append(message)
        self.pump()

    def _note(self, index: int, stop: int) -> None:
        """Tokens of an answer below `stop` have come."""
        self._have += [0] * (index + 1 - len(self._have))
        self._have[index] = max(self._have[index], stop)

    # -- the client's side: as `ZmqStream` ------------------------------------------------------------------------

    def received(self, up_to: int) -> None:
        """Note that the client has every token below `up_to`, and tell the other gateway."""
        self._confirmed = max(self._confirmed, int(up_to))
        self.confirm()

    def confirm(self) -> None:
        """Tell the other gateway what the client has confirmed."""
        if self._link is not None:
            self._link.send_once(public.Received(request=self._asked.request, up_to=self._confirmed))

    def cancel(self) -> None:
        """The client does not want the request any more."""
        self._is_cancelled = True
        if self._link is not None:
            self._link.send_once(public.CancelRequest(request=self._asked.request))

    def pump(self) -> None:
        """Send what can be sent now."""
        while self._unsent:
            if not self._send(self._unsent[0]):
                self.is_blocked = True
                return
            self._unsent.popleft()
        self.is_blocked = False
        if self._is_over and not self.is_closed:
            self.on_done()

    def close(self) -> None:
        """Read nothing more. The other gateway is not told: another connection of the client may go on."""
        self.is_closed = True
        if self._link is not None:
            self._link.close_call(self._asked.request)

    def left(self) -> None:
        """The client has left, or has everything. The other gateway decides how long a running request waits for it."""
        if self._link is not None and not self._is_over:
            self._link.send_once(public.CancelRequest(request=self._asked.request, has_left=True))
