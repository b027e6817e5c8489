"""Parses messages of ZeroMQ clients: what asks for answers into a `NewRequest`, undecodable bytes into fields of a refusal.

Pure.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import Naming, NewRequest
from actors.gateway.bodies.openai_requests import chat_request, completion_request
from actors.gateway.bodies.request_name import Origin, RequestName
from actors.gateway.bodies.schema import ChatBody, CompletionBody, read_body
from actors.gateway.requests.refusals import Refusal, invalid
from messages.ids import seed_of
from messages.public import GENERATE_VERSION, PROTOCOL_VERSION, AnswersWanted, Generate
from messages.wire.arrays import EMPTY_I32
from messages.wire.message import MAX_SHORT_CHARACTERS
from messages.wire.trace_context import TraceCaller, trace_caller_of

Asked = AnswersWanted | Generate
BODIES: dict[str, type[ChatBody | CompletionBody]] = {"chat": ChatBody, "completion": CompletionBody}  # by `AnswersWanted.api`
# fields of `Generate` that may differ when a client sends its request again
_OF_THE_CALL = dict.fromkeys(("api_key", "traceparent", "tracestate"), msgspec.UNSET)


def new_request_of(message: Asked, caller: bytes, body: ChatBody | CompletionBody | None = None) -> NewRequest:
    """The new request in a message of this caller. Its digest leaves out what differs when the client reconnects. `body`: that
    of the message, if it has been read already.

    Raises: Refusal.
    """
    version = GENERATE_VERSION if isinstance(message, Generate) else PROTOCOL_VERSION
    if message.version != version:
        raise invalid("version", str(version), message.version)
    if not message.request:
        raise invalid("request", "an id", message.request)
    if isinstance(message, Generate):
        return _generated(message, caller)
    return _answered(message, caller, read_body(message.body, BODIES[message.api]) if body is None else body)


def have_of(message: Asked) -> list[int]:
    """Of each answer, the generated tokens that the client already holds; of those that are missing at the end it has none."""
    return [int(message.have)] if isinstance(message, Generate) else [int(n) for n in message.have]


def _answered(message: AnswersWanted, caller: bytes, body: ChatBody | CompletionBody) -> NewRequest:
    """The request of a message with a body of the HTTP API, which the client reads as a stream. Raises: Refusal."""
    digest = blake2b(message.body + message.tokens.tobytes(), digest_size=16, key=message.api.encode())
    name = RequestName(
        request=message.request,
        request_field="request",
        naming=Naming.FIXED,
        is_resumable=True,
        ends_with_client=False,
        must_be_known=False,
        digest=digest.hexdigest(),
    )
    origin = origin_of(message, caller)
    has_tokens = len(message.tokens) > 0
    if isinstance(body, ChatBody):
        if has_tokens:
            raise invalid("tokens", "none beside messages", f"{len(message.tokens)} tokens")
        return chat_request(msgspec.structs.replace(body, stream=True), "zeromq", name, origin)
    body = msgspec.structs.replace(body, stream=body.best_of in (None, body.n_or_one))  # the best are known at the end
    if has_tokens and body.prompt:
        raise invalid("tokens", "none beside a prompt", f"{len(message.tokens)} tokens")
    return completion_request(body, "zeromq", name, origin, tokens=message.tokens if has_tokens else None)


def _generated(message: Generate, caller: bytes) -> NewRequest:
    """The request of a message of version 2. Raises: Refusal."""
    given = [message.prompt is not None, len(message.tokens) > 0, message.turns is not None]
    if sum(given) != 1:
        raise Refusal("invalid", f"prompt: expected exactly one of prompt, tokens and turns, got {sum(given)}", field="prompt")
    bare = msgspec.structs.replace(message, have=0, is_repeated=False, tokens=EMPTY_I32, **_OF_THE_CALL)
    digest = blake2b(msgspec.msgpack.encode(bare, enc_hook=lambda _: None) + message.tokens.tobytes(), digest_size=16)
    turns, client = None, _trace_of(message)
    terms = msgspec.structs.replace(message.terms, caller=caller)
    if client is not None:
        terms = msgspec.structs.replace(terms, trace_id=client.trace_id)
    if message.turns is not None:
        turns = turns_of([{"role": turn.role, "content": turn.content} for turn in message.turns])
    return NewRequest(
        api="zeromq",
        sampling=message.sampling,
        texts=None if message.prompt is None else [message.prompt],
        ids=[message.tokens] if len(message.tokens) else None,
        turns=turns,
        terms=terms,
        trace=None if client is None else client.context,
        request=message.request,
        is_resumable=True,
        digest=digest.hexdigest(),
        has_seed=message.sampling.seed != seed_of(message.request),
        prompt_field="tokens" if len(message.tokens) else "turns" if turns is not None else "prompt",
        model=message.model,
    )


def _trace_of(message: Asked) -> TraceCaller | None:
    """What a message says of the trace of its client."""
    if message.traceparent is msgspec.UNSET:
        return None
    return trace_caller_of(message.traceparent, "" if message.tracestate is msgspec.UNSET else message.tracestate)


def origin_of(message: Asked, caller: bytes) -> Origin:
    """Where a message comes from."""
    client, given = _trace_of(message), message.terms.trace_id if isinstance(message, Generate) else message.trace_id
    trace_id = given if client is None else client.trace_id
    return Origin(trace_id=trace_id, caller=caller, trace=None if client is None else client.context)


def field_in(text: str) -> str:
    """The field that a decoder's error message names, or ""."""
    for opening, closing in (("`$.", "`"), ("field `", "`")):
        start = text.find(opening)
        if start >= 0:
            start += len(opening)
            return text[start : text.find(closing, start)]
    head = text.removeprefix("message: ").partition(":")[0]
    return head if head.isidentifier() else ""


class _Named(msgspec.Struct):
    """The fields of a client's messages that name a request or a call. Others are skipped, without making objects of them."""

    request: str = ""
    call: str = ""


_named = msgspec.msgpack.Decoder(_Named)


def request_in(frames: list[bytes]) -> str:
    """The request id in a message that could not be decoded as a whole, or ""."""
    try:
        named = _named.decode(frames[1]) if len(frames) > 1 else _Named()
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return ""
    return (named.request or named.call)[:MAX_SHORT_CHARACTERS]
