"""Streams one request to one ZeroMQ client, with a bound on the tokens in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actors.gateway.requests.best_of import n_shown
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.refusals import journal_unavailable
from actors.gateway.requests.request import Request
from actors.gateway.zeromq.chunks import AnswerWriter
from messages import public
from messages.wire.message import MAX_SHORT_CHARACTERS, Message

# approximate size of the largest Chunk: a socket bounds the number of waiting messages, not their bytes
_CHUNK_BYTES = 16 << 10
_TOKEN_BYTES = 16  # approximate size of a token's id and text


class ZmqStream:
    """Sends Accepted, then Chunks, and one Finished for each answer; or Failed if the request could not be recorded.

    At most `window_tokens` tokens are sent beyond what the client has confirmed. `send` returns False when the socket is full:
    the message is kept, `is_blocked` is set, and the next `pump` sends it first. `on_done` is called after the last message,
    `left` when the client has left or has everything.

    Args:
        have: of each answer, the number of tokens that the client has from an earlier connection; those that are missing at
            its end have none.
    """

    def __init__(self, request: Request, have: Sequence[int], window_tokens: int, send: Callable[[Message], bool]) -> None:
        self.request = request
        self.on_done: Callable[[], None] = lambda: None
        self.left: Callable[[], None] = lambda: None
        self.is_blocked = False
        self._window_tokens, self._send = window_tokens, send
        width = request.spec.sampling.logprobs
        self._chunk_tokens = _CHUNK_BYTES // (_TOKEN_BYTES + (0 if width < 0 else 4 + 8 * width))
        self._received_up_to = sum(have)
        self._is_answered = False
        self._unsent: list[Message] = []
        self._writer = AnswerWriter(request)
        self._reader = Reader(request, have, on_update=self.pump)

    def received(self, up_to: int) -> None:
        """The client confirms `up_to` tokens of all answers together."""
        if self._received_up_to < up_to <= sum(self._reader.cursors):
            self._received_up_to = up_to
            self.pump()

    def pump(self) -> None:
        """Send what can be sent now."""
        is_withdrawn = self.request.is_withdrawn
        if not (self.request.is_recorded or is_withdrawn):
            return
        if not self._is_answered:
            self._is_answered = True
            self._unsent.append(self._withdrawal() if is_withdrawn else self._acceptance())
        while self._flush() and not is_withdrawn:
            deltas = self._reader.take(self._room_tokens())
            if not deltas:
                break
            for delta in deltas:
                self._unsent += self._writer.messages(delta)
        if (is_withdrawn or self._reader.is_done) and not self._unsent:
            self.on_done()

    def _room_tokens(self) -> int:
        """How many tokens of each answer may be sent now."""
        cursors = self._reader.cursors
        room = self._window_tokens - (sum(cursors) - self._received_up_to)
        return min(-(-max(room, 0) // len(cursors)), self._chunk_tokens)

    def close(self) -> None:
        """Stop reading the request."""
        self._reader.close()

    def _flush(self) -> bool:
        """Send what waits; False if the socket is full before all of it is sent."""
        while self._unsent:
            if not self._send(self._unsent[0]):
                self.is_blocked = True
                return False
            self._unsent.pop(0)
        self.is_blocked = False
        return True

    def _acceptance(self) -> Message:
        spec = self.request.spec
        return public.Accepted(
            request=spec.request,
            n_prompt=self.request.n_prompt[0],
            n_answers=n_shown(spec),
            fallback_model=spec.fallback[:MAX_SHORT_CHARACTERS],
            degraded=spec.degraded or msgspec.UNSET,
            queue_wait_ms=spec.shown_wait_ms or msgspec.UNSET,
        )

    def _withdrawal(self) -> Message:
        """The journal could not record the request, so it is not accepted."""
        why = journal_unavailable()
        return public.Failed(
            request=self.request.spec.request,
            code=why.code,
            fine_code=why.fine_code,
            field="",
            detail=why.detail,
            retry_after_s=why.retry_after_s,
        )
