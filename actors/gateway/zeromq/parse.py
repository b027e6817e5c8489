"""Parses messages of ZeroMQ clients: a Generate into a `NewRequest`, undecodable bytes into fields of a refusal. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.refusals import Refusal, invalid
from messages.public import PROTOCOL_VERSION, Generate
from messages.wire.arrays import EMPTY_I32


def new_request_of(message: Generate, caller: bytes) -> NewRequest:
    """The new request in a message of this caller. Its digest leaves out what differs when the client reconnects.

    Raises: Refusal.
    """
    if message.version != PROTOCOL_VERSION:
        raise invalid("version", str(PROTOCOL_VERSION), message.version)
    if not message.request:
        raise invalid("request", "an id", message.request)
    given = [message.prompt is not None, len(message.tokens) > 0, message.turns is not None]
    if sum(given) != 1:
        raise Refusal("invalid", f"prompt: expected exactly one of prompt, tokens and turns, got {sum(given)}", field="prompt")
    bare = msgspec.structs.replace(message, have=0, is_repeated=False, tokens=EMPTY_I32)
    digest = blake2b(msgspec.msgpack.encode(bare, enc_hook=lambda _: None) + message.tokens.tobytes(), digest_size=16)
    turns = None
    if message.turns is not None:
        turns = turns_of([{"role": turn.role, "content": turn.content} for turn in message.turns])
    return NewRequest(
        api="zeromq",
        sampling=message.sampling,
        texts=None if message.prompt is None else [message.prompt],
        ids=[message.tokens] if len(message.tokens) else None,
        turns=turns,
        terms=msgspec.structs.replace(message.terms, caller=caller),
        request=message.request,
        is_resumable=True,
        digest=digest.hexdigest(),
        prompt_field="tokens" if len(message.tokens) else "turns" if turns is not None else "prompt",
        model=message.model,
    )


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
    return (named.request or named.call)[:256]
