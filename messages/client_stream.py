"""One stream as the client library sees it: what has come, what is next, how it ended. Pure: no socket, no clock.

Law: the tokens handed out are numbered 0, 1, 2, ... without a gap or a repeat, whatever the connection went through.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec
import numpy as np

from messages import public
from messages.faults import ClientError, InvalidRequest, Overloaded, RequestFailed, Unavailable


@dataclass(frozen=True)
class Piece:
    """Next tokens of a stream: `ids` int32 [n] start at generated token `first`; `text` is safe to show.

    `logprobs` float32 [n] or empty; `top_ids` int32 and `top_logprobs` float32 [n, width].
    """

    first: int
    ids: np.ndarray
    text: str
    logprobs: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray


@dataclass(frozen=True)
class Answer:
    """A whole answer. `reason`: "stop", "length" or "cancelled"."""

    request: str
    ids: list[int]
    text: str
    reason: str
    n_prompt: int
    n_generated: int
    n_cached: int
    latency_s: float
    first_token_s: float
    pieces: tuple[Piece, ...] = field(repr=False, default=())

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over the whole latency."""
        return self.n_generated / self.latency_s if self.latency_s > 0 else 0.0


def error_of(failed: public.Failed) -> ClientError:
    """A refusal as its typed error."""
    match failed.code:
        case "overloaded":
            return Overloaded(failed.detail, failed.retry_after_s)
        case "unavailable":
            return Unavailable(failed.detail)
        case "internal":
            return RequestFailed(failed.detail)
    return InvalidRequest(failed.detail.removeprefix(f"{failed.field}: "), failed.field)


class StreamState:
    """The client's side of one request."""

    def __init__(self, generate: public.Generate) -> None:
        self._generate = generate
        self.n_arrived = 0  # tokens that have come
        self.n_taken = 0  # tokens that the caller has
        self.n_said = 0  # the last Received
        self.pieces: deque[Piece] = deque()
        self.accepted: public.Accepted | None = None
        self.finished: public.Finished | None = None
        self.error: ClientError | None = None
        self.is_cancel_wanted = False
        self._has_tail = False

    @property
    def request(self) -> str:
        """Its id."""
        return self._generate.request

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""
        return self.finished is not None or self.error is not None

    def say(self) -> public.Generate:
        """The Generate to say now, for the first time or again."""
        return msgspec.structs.replace(self._generate, have=self.n_arrived)

    def on_chunk(self, chunk: public.Chunk) -> None:
        """Take what is new of a chunk. A gap ends the stream: it must never be papered over."""
        if self.is_over:
            return
        if not len(chunk.ids):  # the text that came with the ending: once only
            if chunk.text and not self._has_tail and chunk.first == self.n_arrived:
                self._has_tail = True
                self.pieces.append(_piece(chunk, 0, chunk.text))
            return
        known = self.n_arrived - chunk.first
        if known < 0:
            self.error = RequestFailed(f"expected generated token {self.n_arrived} next, got {chunk.first}")
        elif known == 0:
            self.n_arrived += len(chunk.ids)
            self.pieces.append(_piece(chunk, 0, chunk.text))
        elif known < len(chunk.ids):
            self.error = RequestFailed(f"expected a chunk from token {self.n_arrived}, got one from {chunk.first} across it")

    def on_finished(self, finished: public.Finished) -> None:
        """The ending."""
        if self.is_over:
            return
        if finished.n_generated != self.n_arrived:
            self.error = RequestFailed(f"expected {finished.n_generated} tokens before the ending, got {self.n_arrived}")
        elif finished.reason == "failed":
            self.error = _failure(finished.detail)
        else:
            self.finished = finished

    def on_failed(self, failed: public.Failed) -> bool:
        """A refusal; False when it is only for now and the stream should be said again after a while."""
        is_for_now = failed.code == "unavailable" or (self.accepted is not None and failed.code == "overloaded")
        if is_for_now:
            return False
        self.error = RequestFailed(failed.detail) if self.accepted is not None else error_of(failed)
        return True

    def take(self) -> Piece | None:
        """The next piece for the caller."""
        if not self.pieces:
            return None
        piece = self.pieces.popleft()
        self.n_taken += len(piece.ids)
        return piece


def _failure(detail: str) -> ClientError:
    """An accepted request that ended as failed; one that can never run is the caller's fault."""
    code, _, rest = detail.partition(": ")
    if code in ("too_long", "too_large_for_memory"):
        return InvalidRequest(rest, "prompt")
    return RequestFailed(detail)


def _piece(chunk: public.Chunk, start: int, text: str) -> Piece:
    shape = (len(chunk.ids), chunk.top_width)
    return Piece(
        chunk.first + start,
        chunk.ids,
        text,
        chunk.logprobs,
        chunk.top_ids.reshape(shape),
        chunk.top_logprobs.reshape(shape),
    )
