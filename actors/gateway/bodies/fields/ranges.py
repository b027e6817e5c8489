"""Types of fields that several APIs have, with ranges of their own. Those that a message declares are taken from there."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from messages.generation.logprobs import MAX_TOP_LOGPROBS
from messages.generation.sampling import MAX_TOP_K
from messages.public import MAX_TURNS
from messages.wire.message import ShortText

AnyInt = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what it may be depends on other facts, or it is a token id
ModelName = ShortText
Turns = Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_TURNS)]  # of a conversation
TopLogprobs = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)]
TopKOrOff = Annotated[int, msgspec.Meta(ge=-1, le=MAX_TOP_K)]  # -1 is off too, as in vLLM
