"""The state of one request in a client: the tokens it holds, and what each message of the gateway changes. Pure.

The pieces hold each of the tokens 0, 1, 2, ... of an answer once, whatever happens to the connection: known tokens are dropped,
and after a gap or an overlap the client sends its request again with `have` at the next tokens.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import msgspec

from messages import public
from messages.client.answer import Answer, Piece, calls_of, content_of
from messages.errors import ClientError, DeadlineExceeded, InvalidRequest, Overloaded, Quarantined, RequestFailed, Unavailable
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs, place_logprobs
from messages.outcomes import FAILURES


class Next(Enum):
    """What the client does after a message."""

    NOTHING = auto()
    PIECE = auto()  # a piece was added
    RESEND = auto()  # send the request again, with the present `have`
    RETRY = auto()  # the same, after a while
    END = auto()  # the request is over


class _Told(NamedTuple):
    """What the acceptance of a request says of all its answers; see `Piece`."""

    fallback_model: str = ""
    degraded: str = ""
    queue_wait_ms: int = 0


def _told_by(accepted: public.Accepted) -> _Told:
    degraded, wait_ms = accepted.degraded, accepted.queue_wait_ms
    return _Told(
        fallback_model=accepted.fallback_model,
        degraded="" if degraded is msgspec.UNSET else degraded,
        queue_wait_ms=0 if wait_ms is msgspec.UNSET else int(wait_ms),
    )


class _GrowingAnswer:
    """One answer of a request, as far as it has come."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.pieces: list[Piece] = []
        self.prompt_logprobs: PromptLogprobs | None = None
        self.finished: public.Finished | None = None
        self.n_replayed = 0  # tokens seen again after the server forgot the request
        self.has_tail = False

    @property
    def is_replayed(self) -> bool:
        """True if no token that is known is still to come again. They come again when the server has forgotten the request."""
        return self.finished is not None or self.n_replayed == len(self.tokens)

    def answer(self, request: str, told: _Told, others: tuple[Answer, ...]) -> Answer:
        """The finished answer."""
        assert self.finished is not None
        parts = [part for piece in self.pieces for part in piece.parts]
        return Answer(
            request=request,
            tokens=self.tokens,
            text="".join(piece.text for piece in self.pieces),
            reason=self.finished.reason,
            n_prompt=int(self.finished.n_prompt),
            n_cached=int(self.finished.n_cached),
            logprobs=self._logprobs(),
            pieces=self.pieces,
            prompt_logprobs=self.prompt_logprobs,
            reasoning="".join(piece.reasoning for piece in self.pieces),
            tool_calls=calls_of(parts),
            fallback_model=told.fallback_model,
            degraded=told.degraded,
            queue_wait_ms=told.queue_wait_ms,
            others=others,
        )

    def _logprobs(self) -> TokenLogprobs | None:
        parts = [(piece.first, piece.logprobs) for piece in self.pieces if piece.logprobs is not None]
        return place_logprobs(len(self.tokens), parts) if parts else None


class StreamState:
    """What a client holds of one request. `handle` is called with each message about it."""

    def __init__(self, asked: public.AnswersWanted) -> None:
        self._asked = asked
        self._answers = [_GrowingAnswer()]
        self.pieces: list[Piece] = []  # of all answers, in the order in which they came
        self.is_accepted = False
        self._told = _Told()
        self.is_repeated = asked.is_repeated  # a gateway that does not know the request asks the others
        self.error: ClientError | None = None
        self._is_replay = False

    @property
    def tokens(self) -> list[int]:
        """The tokens of the first answer."""
        return self._answers[0].tokens

    @property
    def n_tokens(self) -> int:
        """The number of tokens of all answers."""
        return sum(len(answer.tokens) for answer in self._answers)

    @property
    def is_finished(self) -> bool:
        """True once the endings of all answers have come."""
        return all(answer.finished is not None for answer in self._answers)

    @property
    def is_over(self) -> bool:
        """True once the endings or an error have come."""
        return self.error is not None or self.is_finished

    @property
    def n_held(self) -> int:
        """The number that `Received` confirms: tokens, plus one for the endings."""
        return self.n_tokens + self.is_finished

    def asked(self) -> public.AnswersWanted:
        """The message to send now."""
        have = [0 if self._is_replay else len(answer.tokens) for answer in self._answers]
        is_repeated = self.is_repeated or self.is_accepted or self.n_tokens > 0
        return msgspec.structs.replace(self._asked, have=have if any(have) else [], is_repeated=is_repeated)

    def handle(self, message: public.GatewayMessage) -> Next:
        """Handle one message about this request; returns what the client must do next."""
        if self.is_over:
            return Next.NOTHING
        match message:
            case public.Accepted():
                self.is_accepted, self._told = True, _told_by(message)
                if message.n_answers < len(self._answers):
                    return self._are_fewer(message)
                while len(self._answers) < min(message.n_answers, public.MAX_ANSWERS):
                    self._answers.append(_GrowingAnswer())
            case public.Chunk() if message.index < len(self._answers):
                return self._chunk(message, self._answers[int(message.index)])
            case public.Finished() if message.index < len(self._answers):
                return self._finish(message, self._answers[int(message.index)])
            case public.Failed():
                return self._fail(message)
        return Next.NOTHING

    def _are_fewer(self, accepted: public.Accepted) -> Next:
        """The server has forgotten the request, and begins it again with fewer answers, because it has more to do now."""
        n_known, why = len(self._answers), f" ({self._told.degraded})" if self._told.degraded else ""
        self.error = RequestFailed(
            f"request: the server forgot it: expected {n_known} answers again, got {accepted.n_answers}{why}"
        )
        return Next.END

    def _chunk(self, chunk: public.Chunk, answer: _GrowingAnswer) -> Next:
        first, ids = int(chunk.first), chunk.ids.tolist()
        if self._is_replay:
            return self._compare(first, ids, answer)
        have = len(answer.tokens)
        if first + len(ids) <= have and ids:
            return Next.NOTHING
        if first != have:
            return Next.RESEND
        if not ids:  # text that came with the ending: it is sent again after a reconnection, but added once
            if answer.has_tail:
                return Next.NOTHING
            answer.has_tail = True
        answer.prompt_logprobs = answer.prompt_logprobs or chunk.prompt_logprobs
        answer.tokens += ids
        text = content_of(chunk.parts) if chunk.parts else chunk.text
        piece = Piece(have, ids, text, chunk.logprobs, int(chunk.index), tuple(chunk.parts), *self._told)
        answer.pieces.append(piece)
        self.pieces.append(piece)
        return Next.PIECE

    def _compare(self, first: int, ids: list[int], answer: _GrowingAnswer) -> Next:
        """Compare the known tokens with those of a server that computes the request a second time; they must be equal."""
        if first > answer.n_replayed:  # a chunk is missing: from the beginning again
            return Next.NOTHING if answer.is_replayed else Next.RESEND
        known = answer.tokens[first : first + len(ids)]
        if known != ids[: len(known)]:
            self.error = RequestFailed(f"request: the server forgot it, and token {first} of its second answer differs")
            return Next.END
        answer.n_replayed = max(answer.n_replayed, first + len(known))
        if all(one.is_replayed for one in self._answers):
            self._is_replay = False
            return Next.RESEND  # the server has caught up: continue after the known tokens
        return Next.NOTHING

    def _finish(self, finished: public.Finished, answer: _GrowingAnswer) -> Next:
        if finished.n_generated > len(answer.tokens):
            return Next.NOTHING if self._is_replay and answer.is_replayed else Next.RESEND
        answer.finished = finished
        if finished.reason in FAILURES:
            detail = finished.detail or "the server could not finish the request"
            self.error = _failure_of(finished, detail)
        return Next.END if self.is_over else Next.NOTHING

    def _fail(self, failed: public.Failed) -> Next:
        is_forgotten = (failed.code == "not_found" and failed.field == "request") or failed.field == "have"
        if is_forgotten and self.n_tokens:
            self._is_replay = True  # the journal lost it: let the server compute the same tokens again
            for answer in self._answers:
                answer.n_replayed = 0
            return Next.RESEND
        if failed.field == "have":  # a gateway that forwards asked for it, after tokens that never reached this client
            return Next.RESEND
        if failed.code == "unavailable" and (self.is_accepted or self.n_tokens):
            return Next.RETRY  # it is in a journal: the gateway that has it comes back
        if failed.code == "unavailable" and self.is_repeated and not self._asked.is_repeated:
            self.is_repeated = False  # nobody else knows its id, and its client has not seen anything of it
            return Next.RESEND
        self.error = error_of(failed)
        return Next.END

    def answer(self) -> Answer:
        """The first answer of the finished request, with the others. Raises: ClientError when it ended with one."""
        if self.error is not None:
            raise self.error
        who = self._asked.request, self._told
        return self._answers[0].answer(*who, tuple(answer.answer(*who, ()) for answer in self._answers[1:]))


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
