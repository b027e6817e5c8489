"""A public Generate as a wish. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from actors.gateway.admission.intake import Wish
from actors.gateway.http.schema import turns_of
from actors.gateway.requests.refusals import Refusal, invalid
from messages.public import PROTOCOL_VERSION, Generate
from messages.wire.arrays import EMPTY_I32


def wish_of(message: Generate) -> tuple[str, Wish]:
    """(digest, wish) of a client's message. The digest leaves out how far the client has come.

    Raises: Refusal.
    """
    if message.version != PROTOCOL_VERSION:
        raise invalid("version", str(PROTOCOL_VERSION), message.version)
    if not message.request:
        raise invalid("request", "an id", message.request)
    given = [message.prompt is not None, len(message.tokens) > 0, message.turns is not None]
    if sum(given) != 1:
        raise Refusal("invalid", f"prompt: expected exactly one of prompt, tokens and turns, got {sum(given)}", field="prompt")
    bare = msgspec.structs.replace(message, have=0, tokens=EMPTY_I32)
    digest = blake2b(msgspec.msgpack.encode(bare, enc_hook=lambda _: None) + message.tokens.tobytes(), digest_size=16)
    turns = None
    if message.turns is not None:
        turns = turns_of([{"role": turn.role, "content": turn.content} for turn in message.turns])
    return digest.hexdigest(), Wish(
        api="front",
        sampling=message.sampling,
        texts=None if message.prompt is None else [message.prompt],
        ids=[message.tokens] if len(message.tokens) else None,
        turns=turns,
        max_tokens=message.max_tokens,
        stop=message.stop,
        stop_tokens=message.stop_tokens,
        ignore_eos=message.ignore_eos,
        request=message.request,
        is_resumable=True,
        digest=digest.hexdigest(),
        prompt_field="tokens" if len(message.tokens) else "turns" if turns is not None else "prompt",
        model=message.model,
    )
