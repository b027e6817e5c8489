"""The public protocol between ZeroMQ clients and a gateway.

A client has one DEALER socket, the gateway a ROUTER. Each message is two frames: the message itself (msgpack, a map whose
`kind` is the class name) and the bytes of its arrays. `AnswersWanted` is idempotent by `request`: sent again with `have` = [n],
it continues the stream at generated token n, on this incarnation of the gateway or the next, or at another gateway of the same
server. A client that has lost its connection sends it again, and no token is lost or repeated.

Version 3 asks in the vocabulary of the HTTP API. Version 2, which asks with `Generate`, is served as well.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.outcomes import Code, EndReason, NoCode
from messages.wire.arrays import EMPTY_I32, Float32s, Int32s
from messages.wire.message import (
    NO_TRACE,
    Count,
    LongText,
    Message,
    Part,
    ShortText,
    StrictMessage,
    StrictPart,
    Text,
    TraceId,
)
from messages.wire.trace_context import TraceState

PROTOCOL_VERSION = 3  # of `AnswersWanted`
GENERATE_VERSION = 2  # of `Generate`
MAX_ANSWERS = 4096  # to one request
MAX_TURNS = 4096  # of one conversation


class Channel(StrEnum):
    """What a part of an answer is."""

    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"  # a call of a tool begins; the text is the tool's name
    ARGUMENTS = "arguments"  # more of the JSON text of the newest call's arguments
    NO_CALL = "no_call"  # the newest call turns out to be none; the text is all that the model has written in its place


class ChatTurn(StrictPart, frozen=True):
    """One message of a conversation."""

    role: ShortText
    content: Text


class KeyedMessage(StrictMessage, frozen=True, kw_only=True):
    """What a server with API keys answers for their holders only. `api_key`: not sent without one, as older servers expect."""

    api_key: ShortText | msgspec.UnsetType = msgspec.UNSET


class AnswersWanted(KeyedMessage, frozen=True):
    """Asks for what a body of POST /v1/chat/completions or POST /v1/completions asks for. Answered by Accepted, by Chunks, and
    by one Finished for each answer; or by Failed.

    `body`: the JSON object, with the field names of the HTTP API. They mean the same, but an unknown one is refused, and an
    answer without `max_tokens` ends at the end of the context. `tokens`: a prompt as token ids; the body's `prompt` is then [].
    """

    request: ShortText
    api: Literal["chat", "completion"]
    body: Annotated[bytes, msgspec.Meta(max_length=16 << 20)]
    tokens: Int32s = EMPTY_I32
    # Of each answer, the generated tokens that the client already holds. Of answers that are missing at the end it has none.
    have: Annotated[list[Count], msgspec.Meta(max_length=MAX_ANSWERS)] = []
    is_repeated: bool = False  # as in `Generate`
    trace_id: TraceId = NO_TRACE
    version: Count = PROTOCOL_VERSION
    # the headers of W3C Trace Context, instead of `trace_id`; not sent without them, as older servers expect
    traceparent: ShortText | msgspec.UnsetType = msgspec.UNSET
    tracestate: TraceState | msgspec.UnsetType = msgspec.UNSET


class Generate(KeyedMessage, frozen=True):
    """Version 2: generate one answer to exactly one of a text prompt, token ids, a conversation."""

    request: ShortText
    sampling: Sampling
    terms: Terms = Terms()
    prompt: Text | None = None
    tokens: Int32s = EMPTY_I32
    turns: Annotated[list[ChatTurn], msgspec.Meta(max_length=MAX_TURNS)] | None = None
    model: ShortText = ""  # empty: the served model, whatever its name
    have: Count = 0  # generated tokens that the client already holds
    # another gateway may have the request: this one asks all others before it begins a new one, and refuses if one is silent
    is_repeated: bool = False
    version: Count = GENERATE_VERSION
    traceparent: ShortText | msgspec.UnsetType = msgspec.UNSET  # as in `AnswersWanted`, instead of `terms.trace_id`
    tracestate: TraceState | msgspec.UnsetType = msgspec.UNSET


class Accepted(Message, frozen=True):
    """The request is recorded; from now on it is not lost."""

    request: ShortText
    n_prompt: Count
    n_answers: Count = 1
    fallback_model: ShortText = ""  # the name of the model that answers instead of the main one; "": the main one does
    # as the headers X-Degraded and X-Queue-Wait-Ms have them over HTTP; not sent where those are not
    degraded: ShortText | msgspec.UnsetType = msgspec.UNSET
    queue_wait_ms: Count | msgspec.UnsetType = msgspec.UNSET


class AnswerPart(Part, frozen=True, omit_defaults=True):
    """A part of an answer in one channel."""

    channel: Channel
    text: Text
    call: ShortText = ""  # the id of the call that begins


class Chunk(Message, frozen=True):
    """The next tokens of a stream: `ids` begins at generated token `first`. `text` is the text that they complete.

    Where reasoning or calls of tools are told from the content, the text is in `parts`. They are a function of the tokens up to
    these and of the request, so they are the same when the tokens are sent again.
    """

    request: ShortText
    first: Count
    ids: Int32s
    text: Text
    logprobs: TokenLogprobs | None = None  # of `ids`; None if not asked for
    prompt_logprobs: PromptLogprobs | None = None  # of the prompt; only with token 0, None if not asked for
    index: Count = 0  # of the answer
    parts: list[AnswerPart] = []


class Finished(Message, frozen=True):
    """The one ending of an answer to a request that was accepted."""

    request: ShortText
    reason: EndReason
    n_prompt: Count
    n_generated: Count
    n_cached: Count
    code: Code | NoCode = ""  # why it failed
    detail: LongText = ""
    index: Count = 0  # of the answer


class Failed(Message, frozen=True):
    """The request was not accepted, or a call could not be answered.

    `field`: the field at fault, "" if none is. `fine_code`: a `FineCode` where one says more than `code`, else ""; it may be
    one that only a newer server knows.
    """

    request: ShortText
    code: Code
    field: ShortText
    detail: LongText
    retry_after_s: float = 0.0
    fine_code: ShortText = ""


class Received(StrictMessage, frozen=True):
    """The client has the first `up_to` tokens, counted over all answers of the request, so more may be sent. The number of all
    tokens plus one confirms that the client also has every Finished."""

    request: ShortText
    up_to: Count


class CancelRequest(StrictMessage, frozen=True):
    """Ends a request that the client does not want any more. Answered by its Finished.

    `has_left`: sent by a gateway that forwards the stream. Its client has left, and may have gone to another gateway. The
    request waits for the client as if it had left here, unless another connection reads it. Not answered.
    """

    request: ShortText
    has_left: bool = False


class ModelsWanted(KeyedMessage, frozen=True):
    """Asks which models are served. Answered by Models."""

    call: ShortText


class Models(Message, frozen=True):
    """The served models, with their context length in tokens."""

    call: ShortText
    names: list[str]
    max_length: Count


class StatsWanted(KeyedMessage, frozen=True):
    """Asks for the JSON summary of /v1/metrics. Answered by Stats."""

    call: ShortText


class Stats(Message, frozen=True):
    """The summary, as JSON text."""

    call: ShortText
    summary: Text


class CacheResetWanted(KeyedMessage, frozen=True):
    """Asks that caches forget what the JSON object `body` says, as POST /v1/cache/reset does. Answered by CachesReset.

    `operator_key`: `gateway.operator_key`; a client at the server's Unix socket needs none, nor does an API key of an admin.
    """

    call: ShortText
    body: Annotated[bytes, msgspec.Meta(max_length=16 << 20)]
    operator_key: ShortText = ""


class CachesReset(Message, frozen=True):
    """So many cached pages and kept answers are forgotten."""

    call: ShortText
    pages: Count
    answers: Count


class EmbeddingsWanted(KeyedMessage, frozen=True):
    """Asks for vectors of texts, or of token ids: text i is then the next `counts[i]` of `ids`. Answered by TextVectors."""

    call: ShortText
    texts: Annotated[list[Text], msgspec.Meta(max_length=MAX_TURNS)] = []
    counts: Int32s = EMPTY_I32
    ids: Int32s = EMPTY_I32
    model: ShortText = ""  # empty: the embedding model, whatever its name
    dimensions: Count | None = None  # of the vectors; None: all that the model has
    truncate_prompt_tokens: int | None = None  # longer texts are cut; -1: to what the model takes; None: they are refused
    # of the model's prompt before each text; "": none; not sent, as older servers expect: the model's default one
    prompt_name: ShortText | msgspec.UnsetType = msgspec.UNSET


class TextVectors(Message, frozen=True):
    """The vectors, one after the other."""

    call: ShortText
    model: ShortText
    n_texts: Count
    vectors: Float32s
    n_tokens: Count


class Alive(Message, frozen=True):
    """Sent regularly to every client with an open stream. If the incarnation is new, the client sends what is open again."""

    incarnation: Count


ClientMessage = (
    AnswersWanted | Generate | Received | CancelRequest | ModelsWanted | StatsWanted | CacheResetWanted | EmbeddingsWanted
)
GatewayMessage = Accepted | Chunk | Finished | Failed | Models | Stats | CachesReset | TextVectors | Alive
