"""What a client's caller gets: the pieces of a growing answer, and the whole answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.public import AnswerPart, Channel

_CONTENT = (Channel.CONTENT, Channel.NO_CALL)


@dataclass(frozen=True)
class Piece:
    """The next tokens of a stream, and the text that they complete."""

    first: int
    ids: list[int]
    text: str  # of the content
    logprobs: TokenLogprobs | None  # of `ids`; None unless asked for
    index: int = 0  # of the answer, where several were asked for
    parts: tuple[AnswerPart, ...] = ()  # where reasoning or calls are told from the content: all parts of the text, in order
    fallback_model: str = ""  # the name of the model that answers instead of the main one; "": the main one does
    degraded: str = ""  # what the load of the server has changed, as `drafts=off, n=2, max_tokens=256`; "": nothing
    queue_wait_ms: int = 0  # when the request came, what waited was expected to take so long; 0: less than a second

    @property
    def reasoning(self) -> str:
        """The text of the reasoning that these tokens complete."""
        return "".join(part.text for part in self.parts if part.channel is Channel.REASONING)


@dataclass(frozen=True)
class AnswerCall:
    """A call of a tool that the model wants. `arguments`: JSON text, cut off where the answer is."""

    id: str
    name: str
    arguments: str

    @property
    def input(self) -> dict[str, Any]:
        """The arguments as an object. Raises: ValueError if they were cut off."""
        return json.loads(self.arguments)


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
    reasoning: str = ""  # told from the text, if the model writes any
    tool_calls: tuple[AnswerCall, ...] = ()
    fallback_model: str = ""  # as in `Piece`, as are the next two
    degraded: str = ""
    queue_wait_ms: int = 0
    others: tuple[Answer, ...] = field(default=(), repr=False)  # to the same request, where several were asked for

    @property
    def choices(self) -> tuple[Answer, ...]:
        """All answers to the request: this one, then the others."""
        return (self, *self.others)


def content_of(parts: Iterable[AnswerPart]) -> str:
    """The text of the content in the parts of an answer."""
    return "".join(part.text for part in parts if part.channel in _CONTENT)


def calls_of(parts: Iterable[AnswerPart]) -> tuple[AnswerCall, ...]:
    """The calls of tools in the parts of an answer."""
    calls: list[AnswerCall] = []
    for part in parts:
        if part.channel is Channel.CALL:
            calls.append(AnswerCall(part.call, part.text, ""))
        elif part.channel is Channel.ARGUMENTS:
            calls[-1] = AnswerCall(calls[-1].id, calls[-1].name, calls[-1].arguments + part.text)
        elif part.channel is Channel.NO_CALL:
            calls.pop()
    return tuple(calls)
