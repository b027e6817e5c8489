"""The JSON body of a call: what a client asks for, under the field names of the HTTP API. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from messages.errors import InvalidRequest
from messages.generation.grammar import Grammar, GrammarKind
from messages.generation.sampling import Sampling
from messages.transport.zmq_options import PUBLIC_FRAME_BYTES

MOST_BYTES = PUBLIC_FRAME_BYTES - (64 << 10)  # a larger message would end the connection
_NAMES = {"stop_tokens": "stop_token_ids"}  # of options that have another name as fields
_GRAMMARS = {
    GrammarKind.JSON_SCHEMA: "json",
    GrammarKind.REGEX: "regex",
    GrammarKind.LARK: "grammar",
    GrammarKind.CHOICE: "choice",
}


def body_of(prompt: Mapping[str, Any], options: Mapping[str, Any]) -> bytes:
    """The body of a call. `prompt`: the field `messages` or `prompt`; `options`: checked ones; None means not given.

    Raises: InvalidRequest.
    """
    fields = dict(prompt)
    is_chat = "messages" in fields
    for name, value in options.items():
        if value is None or (name == "prompt_logprobs" and value < 0):
            continue
        if name == "sampling":
            fields |= _sampling(value, is_chat=is_chat)
        elif name == "logprobs":
            fields |= _logprobs(value, is_chat=is_chat)
        elif name == "grammar":
            fields |= _grammar(value)
        else:
            fields[_NAMES.get(name, name)] = value
    source = "messages" if is_chat else "prompt"
    try:
        body = msgspec.json.encode(fields)
    except (TypeError, ValueError, RecursionError) as error:  # ValueError: text that is not valid Unicode
        raise InvalidRequest(f"expected values of JSON, got {type(error).__name__}: {error}"[:300], source) from None
    if len(body) > MOST_BYTES:
        raise InvalidRequest(f"expected at most {MOST_BYTES} bytes with all options as JSON, got {len(body)}", source)
    return body


def _sampling(sampling: Sampling, *, is_chat: bool) -> dict[str, Any]:
    """All parameters, so that no default of the server takes the place of one."""
    fields = {name: value for name, value in msgspec.structs.asdict(sampling).items() if name != "logprobs"}
    return {**fields, **_logprobs(sampling.logprobs, is_chat=is_chat)}


def _logprobs(wanted: int, *, is_chat: bool) -> dict[str, Any]:
    if wanted < 0:
        return {}
    return {"logprobs": True, "top_logprobs": wanted} if is_chat else {"logprobs": wanted}


def _grammar(grammar: Grammar) -> dict[str, Any]:
    if grammar.kind not in _GRAMMARS:
        raise InvalidRequest(f"expected one of {', '.join(_GRAMMARS)}, got {grammar.kind}", "grammar")
    value: Any = grammar.text
    if grammar.kind is GrammarKind.CHOICE:
        try:
            value = json.loads(grammar.text)
        except ValueError:
            raise InvalidRequest(f"expected a JSON list of strings, got {grammar.text[:80]!r}", "grammar") from None
    return {"structured_outputs": {_GRAMMARS[grammar.kind]: value}}
