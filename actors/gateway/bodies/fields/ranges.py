"""Types of fields that several APIs have, with ranges of their own. Those that a message declares are taken from there.

Of objects that are checked where they are read, the types have what the API's document says of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from actors.gateway.admission.chat_turns import ROLES
from messages.generation.logprobs import MAX_TOP_LOGPROBS
from messages.generation.sampling import MAX_TOP_K
from messages.public import MAX_TURNS
from messages.wire.message import ShortText

AnyInt = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what it may be depends on other facts, or it is a token id
ModelName = ShortText


def described(required: Sequence[str] = (), **fields: Any) -> msgspec.Meta:
    """What the API's document says of an object: JSON schemas of its fields."""
    return msgspec.Meta(extra_json_schema={"properties": fields} | ({"required": list(required)} if required else {}))


def turn_by(roles: Sequence[str]) -> msgspec.Meta:
    """A message by one of these roles, as the document describes it."""
    part = {"type": "object", "required": ["type"], "properties": {"type": _TEXT}}
    content = {"anyOf": [_TEXT, {"type": "array", "items": part}, {"type": "null"}]}
    return described(["role"], role={"enum": list(roles)}, content=content)


_TEXT, _OBJECT = {"type": "string"}, {"type": "object"}
_FUNCTION = {"properties": {"name": _TEXT, "description": _TEXT, "parameters": _OBJECT}, "required": ["name"]}
_SCHEMA = {"properties": {"name": _TEXT, "schema": _OBJECT}, "required": ["schema"]}

MaxTurns = msgspec.Meta(max_length=MAX_TURNS)
Turns = Annotated[list[Annotated[dict[str, Any], turn_by(ROLES)]], MaxTurns]  # of a conversation
ToolObject = Annotated[
    dict[str, Any], described(["type", "function"], type={"const": "function"}, function=_OBJECT | _FUNCTION)
]
ResponseFormat = Annotated[
    dict[str, Any],
    described(["type"], type={"enum": ["text", "json_object", "json_schema"]}, json_schema=_OBJECT | _SCHEMA),
]
StructuredOutputs = Annotated[
    dict[str, Any],
    described(
        json={"type": ["object", "string"]}, json_object={"type": "boolean"}, regex=_TEXT, grammar=_TEXT,
        choice={"type": "array", "items": _TEXT, "minItems": 1},
    ),
]  # fmt: skip
TopLogprobs = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)]
TopKOrOff = Annotated[int, msgspec.Meta(ge=-1, le=MAX_TOP_K)]  # -1 is off too, as in vLLM
