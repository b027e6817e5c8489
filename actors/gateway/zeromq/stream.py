"""Streams one request to one ZeroMQ client, with a bound on the tokens in flight."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.requests.reader import Delta, Reader
from actors.gateway.requests.refusals import journal_unavailable
from actors.gateway.requests.request import Request
from messages import public
from messages.wire.arrays import EMPTY_I32, int32s
from messages.wire.message import Message

# approximate size of the largest Chunk: a socket bounds the number of waiting messages, not their bytes
_CHUNK_BYTES = 16 << 10
_TOKEN_BYTES = 16  # approximate size of a token's id and text


class ZmqStream:
    """Sends Accepted, then Chunks, then Finished for a request with one sequence; or Failed if it could not be recorded.

    At most `window_tokens` tokens are sent beyond what the client has confirmed. `send` returns False when the socket is full:
    the message is kept, `is_blocked` is set, and the next `pump` sends it first. `on_done` is called after the last message,
    `left` when the client has left or has everything.

    Args:
        have: number of tokens that the client has from an earlier connection.
    """

    def __init__(self, request: Request, have: int, window_tokens: int, send: Callable[[Message], bool]) -> None:
        self.request = request
        self.on_done: Callable[[], None] = lambda: None
        self.left: Callable[[], None] = lambda: None
        self.is_blocked = False
        self._window_tokens, self._send = window_tokens, send
        width = request.spec.sampling.logprobs
        self._chunk_tokens = _CHUNK_BYTES // (_TOKEN_BYTES + (0 if width < 0 else 4 + 8 * width))
        self._received_up_to = have
        self._is_answered = False
        self._unsent: list[Message] = []
        self._reader = Reader(request, have, on_update=self.pump)

    def received(self, up_to: int) -> None:
        """The client confirms every token below `up_to`."""
        if self._received_up_to < up_to <= self._reader.cursors[0]:
            self._received_up_to = up_to
            self.pump()

    def pump(self) -> None:
        """Send what can be sent now."""
        is_withdrawn = self.request.is_over and not self.request.is_recorded
        if not (self.request.is_recorded or is_withdrawn):
            return
        if not self._is_answered:
            self._is_answered = True
            self._unsent.append(self._withdrawal() if is_withdrawn else self._acceptance())
        while self._flush() and not is_withdrawn:
            room = self._window_tokens - (self._reader.cursors[0] - self._received_up_to)
            deltas = self._reader.take(min(max(room, 0), self._chunk_tokens))
            if not deltas:
                break
            self._unsent += self._messages(deltas[0])
        if (is_withdrawn or self._reader.is_done) and not self._unsent:
            self.on_done()

    def close(self) -> None:
        """Stop reading the request."""
        self._reader.close()

    def _flush(self) -> bool:
        while self._unsent:
            if not self._send(self._unsent[0]):
                self.is_blocked = True
                return False
            self._unsent.pop(0)
        self.is_blocked = False
        return True

    def _acceptance(self) -> Message:
        return public.Accepted(request=self.request.spec.request, n_prompt=self.request.n_prompt[0])

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

    def _messages(self, delta: Delta) -> list[Message]:
        messages: list[Message] = []
        request_id = self.request.spec.request
        if delta.stop > delta.first:
            messages.append(self._chunk(delta))
        if delta.tail:
            messages.append(public.Chunk(request=request_id, first=delta.stop, ids=EMPTY_I32, text=delta.tail))
        if delta.ended is not None:
            ended = delta.ended
            messages.append(
                public.Finished(
                    request=request_id,
                    reason=ended.reason,
                    n_prompt=self.request.n_prompt[0],
                    n_generated=delta.stop,
                    n_cached=ended.n_cached,
                    code=ended.code,
                    detail=ended.detail,
                )
            )
        return messages

    def _chunk(self, delta: Delta) -> public.Chunk:
        request_id, ids = self.request.spec.request, int32s(delta.ids)
        has_logprobs = self.request.spec.sampling.logprobs >= 0
        logprobs = delta.sequence.logprobs_of(delta.first, delta.stop) if has_logprobs else None
        prompt = None if delta.first else delta.sequence.prompt_logprobs
        return public.Chunk(
            request=request_id, first=delta.first, ids=ids, text=delta.text, logprobs=logprobs, prompt_logprobs=prompt
        )
