"""The public protocol: what a ZeroMQ client and a gateway's front say to each other.

A client holds one DEALER; the gateway's front is a ROUTER. Two frames each way: the message (msgpack, a map whose `kind` is
the class name) and the frame of its arrays. `Generate` is idempotent by `request`: sending it again with `have` = n
continues the stream at generated token n, on this gateway incarnation or the next, so a client that lost its peer says it
once more and loses and repeats nothing. The client picks the seed for that reason.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.generation import Sampling, Terms
from messages.logprobs import TokenLogprobs
from messages.outcomes import Code, EndReason, NoCode
from messages.wire.arrays import EMPTY_I32, Int32s
from messages.wire.message import Count, LongText, Message, Part, ShortText, Text

PROTOCOL_VERSION = 2


class ChatTurn(Part, frozen=True):
    """One message of a conversation."""

    role: ShortText
    content: Text


class Generate(Message, frozen=True):
    """Generate from exactly one of: a text prompt, token ids, a conversation."""

    request: ShortText
    sampling: Sampling
    terms: Terms = Terms()
    prompt: Text | None = None
    tokens: Int32s = EMPTY_I32
    turns: Annotated[list[ChatTurn], msgspec.Meta(max_length=4096)] | None = None
    model: ShortText = ""  # empty: whatever is served
    have: Count = 0  # generated tokens that the client already holds
    version: Count = PROTOCOL_VERSION


class Accepted(Message, frozen=True):
    """The request is recorded; from now on it is not lost."""

    request: ShortText
    n_prompt: Count


class Chunk(Message, frozen=True):
    """Next tokens of a stream: `ids` starts at generated token `first`. `text` is what became safe to show with them."""

    request: ShortText
    first: Count
    ids: Int32s
    text: Text
    logprobs: TokenLogprobs | None = None  # of `ids`; None where not asked for


class Finished(Message, frozen=True):
    """The one ending of a request that was accepted."""

    request: ShortText
    reason: EndReason
    n_prompt: Count
    n_generated: Count
    n_cached: Count
    code: Code | NoCode = ""  # why it failed
    detail: LongText = ""


class Failed(Message, frozen=True):
    """The request was not accepted, or a call could not be answered. `field` names the culprit when there is one."""

    request: ShortText
    code: Code
    field: ShortText
    detail: LongText
    retry_after_s: float = 0.0


class Received(Message, frozen=True):
    """Credit: the client holds every token of the stream below `up_to`; one beyond the last token means its Finished too."""

    request: ShortText
    up_to: Count


class CancelRequest(Message, frozen=True):
    """The client no longer wants this request. Answered by its Finished."""

    request: ShortText


class ModelsWanted(Message, frozen=True):
    """Which models are served?"""

    call: ShortText


class Models(Message, frozen=True):
    """The served models, with their context length in tokens."""

    call: ShortText
    names: list[str]
    max_length: Count


class StatsWanted(Message, frozen=True):
    """The JSON summary of /v1/metrics."""

    call: ShortText


class Stats(Message, frozen=True):
    """The summary, as JSON text."""

    call: ShortText
    summary: Text


class Alive(Message, frozen=True):
    """The front's beat to every client with an open stream; a new incarnation means: say your open Generates again."""

    incarnation: Count


ClientMessage = Generate | Received | CancelRequest | ModelsWanted | StatsWanted
FrontMessage = Accepted | Chunk | Finished | Failed | Models | Stats | Alive
