"""The state of one request in a client: the tokens it holds, and what each message of the gateway changes. Pure.

The pieces hold each of the tokens 0, 1, 2, ... once, whatever happens to the connection: known tokens are dropped, and after a
gap or an overlap the client sends its Generate again with `have` at the next token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from messages import public
from messages.errors import ClientError, DeadlineExceeded, InvalidRequest, Overloaded, Quarantined, RequestFailed, Unavailable
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs, place_logprobs
from messages.outcomes import FAILURES


@dataclass(frozen=True)
class Piece:
    """The next tokens of a stream, and the text that they complete."""

    first: int
    ids: list[int]
    text: str
    logprobs: TokenLogprobs | None  # of `ids`; None unless asked for


@dataclass(frozen=True)
class Answer:
    """A finished request."""

    request: str
    tokens: list[int]
    text: str
    reason: str  # stop, length, cancelled
    n_prompt: int
    n_cached: int
    logprobs: TokenLogprobs | None  # of `tokens`; None unless asked for
    pieces: list[Piece] = field(repr=False)
    prompt_logprobs: PromptLogprobs | None = field(default=None, repr=False)  # from its second token on; None unless asked for


class Next(Enum):
    """What the client does after a message."""

    NOTHING = auto()
    PIECE = auto()  # a piece was added
    RESEND = auto()  # send the Generate again, with the present `have`
    RETRY = auto()  # the same, after a while
    END = auto()  # `finished` or `error` is set


class StreamState:
    """What a client holds of one request. `handle` is called with each message about it."""

    def __init__(self, generate: public.Generate) -> None:
        self._generate = generate
        self.tokens: list[int] = []
        self.pieces: list[Piece] = []
        self.prompt_logprobs: PromptLogprobs | None = None
        self.is_accepted = False
        self.is_repeated = generate.is_repeated  # a gateway that does not know the request asks the others
        self.finished: public.Finished | None = None
        self.error: ClientError | None = None
        self._replayed = 0  # tokens seen again after the server forgot the request
        self._is_replay = False
        self._has_tail = False

    @property
    def is_over(self) -> bool:
        """True once the ending or an error has come."""
        return self.finished is not None or self.error is not None

    @property
    def n_held(self) -> int:
        """The number that `Received` confirms: tokens, plus one for the ending."""
        return len(self.tokens) + (self.finished is not None)

    def generate(self) -> public.Generate:
        """The Generate to send now."""
        is_repeated = self.is_repeated or self.is_accepted or bool(self.tokens)
        return msgspec.structs.replace(self._generate, have=0 if self._is_replay else len(self.tokens), is_repeated=is_repeated)

    def handle(self, message: public.GatewayMessage) -> Next:
        """Handle one message about this request; returns what the client must do next."""
        if self.is_over:
            return Next.NOTHING
        match message:
            case public.Accepted():
                self.is_accepted = True
            case public.Chunk():
                return self._chunk(message)
            case public.Finished():
                return self._finish(message)
            case public.Failed():
                return self._fail(message)
        return Next.NOTHING

    def _chunk(self, chunk: public.Chunk) -> Next:
        first, ids = int(chunk.first), chunk.ids.tolist()
        if self._is_replay and first < len(self.tokens):
            return self._compare(first, ids)
        have = len(self.tokens)
        if first + len(ids) <= have and ids:
            return Next.NOTHING
        if first != have:
            return Next.RESEND
        if not ids:  # text that came with the ending: it is sent again after a reconnection, but added once
            if self._has_tail:
                return Next.NOTHING
            self._has_tail = True
        self.prompt_logprobs = self.prompt_logprobs or chunk.prompt_logprobs
        self.tokens += ids
        piece = Piece(have, ids, chunk.text, chunk.logprobs)
        self.pieces.append(piece)
        return Next.PIECE

    def _compare(self, first: int, ids: list[int]) -> Next:
        """Compare tokens of a server that computes the request a second time with the known ones; they must be equal."""
        known = self.tokens[first : first + len(ids)]
        if first > self._replayed:
            return Next.RESEND  # a chunk is missing: from the beginning again
        if known != ids[: len(known)]:
            self.error = RequestFailed(f"request: the server forgot it, and token {first} of its second answer differs")
            return Next.END
        self._replayed = first + len(known)
        if self._replayed == len(self.tokens):
            self._is_replay = False
            return Next.RESEND  # the server has caught up: continue after the known tokens
        return Next.NOTHING

    def _finish(self, finished: public.Finished) -> Next:
        if finished.n_generated > len(self.tokens):
            return Next.RESEND
        self.finished = finished
        if finished.reason in FAILURES:
            detail = finished.detail or "the server could not finish the request"
            self.error = _failure_of(finished, detail)
        return Next.END

    def _fail(self, failed: public.Failed) -> Next:
        is_forgotten = (failed.code == "not_found" and failed.field == "request") or failed.field == "have"
        if is_forgotten and self.tokens:
            self._is_replay, self._replayed = True, 0  # the journal lost it: let the server compute the same tokens again
            return Next.RESEND
        if failed.field == "have":  # asked by a gateway between, which had passed on tokens that never came
            return Next.RESEND
        if failed.code == "unavailable" and (self.is_accepted or self.tokens):
            return Next.RETRY  # it is in a journal: the gateway that has it comes back
        if failed.code == "unavailable" and self.is_repeated and not self._generate.is_repeated:
            self.is_repeated = False  # nobody else knows its id, and its client has not seen anything of it
            return Next.RESEND
        self.error = error_of(failed)
        return Next.END

    def answer(self) -> Answer:
        """The finished request. Raises: ClientError when it ended with one."""
        if self.error is not None:
            raise self.error
        assert self.finished is not None
        return Answer(
            request=self._generate.request,
            tokens=self.tokens,
            text="".join(piece.text for piece in self.pieces),
            reason=self.finished.reason,
            n_prompt=int(self.finished.n_prompt),
            n_cached=int(self.finished.n_cached),
            logprobs=self._logprobs(),
            pieces=self.pieces,
            prompt_logprobs=self.prompt_logprobs,
        )

    def _logprobs(self) -> TokenLogprobs | None:
        if self._generate.sampling.logprobs < 0:
            return None
        parts = ((piece.first, piece.logprobs) for piece in self.pieces if piece.logprobs is not None)
        return place_logprobs(len(self.tokens), parts)


def _failure_of(finished: public.Finished, detail: str) -> ClientError:
    """The exception for an accepted request that has failed."""
    if finished.reason == "quarantined":
        return Quarantined(detail)
    return DeadlineExceeded(detail) if finished.code == "deadline" else RequestFailed(detail)


def error_of(failed: public.Failed) -> ClientError:
    """The exception for a refusal."""
    error = _error_of(failed)
    error.code = failed.fine_code or failed.code
    return error


def _error_of(failed: public.Failed) -> ClientError:
    match failed.code:
        case "overloaded":
            return Overloaded(failed.detail, failed.retry_after_s)
        case "unavailable":
            return Unavailable(failed.detail)
        case "quarantined":
            return Quarantined(failed.detail)
        case "deadline":
            return DeadlineExceeded(failed.detail)
        case "internal":
            return RequestFailed(failed.detail)
        case _:
            return InvalidRequest(failed.detail.removeprefix(f"{failed.field}: "), failed.field)
