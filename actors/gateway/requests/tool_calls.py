"""Calls of tools in an answer: their ids, and the calls of an answer that is over. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.text.pieces import Channel, TextPiece


@dataclass
class ToolCall:
    """One call. `number`: counts those that have begun in its answer, from 0. `arguments`: JSON text, perhaps cut off."""

    number: int
    name: str
    arguments: str = ""

    @property
    def input(self) -> dict[str, Any] | None:
        """The arguments as an object; None if they were cut off."""
        try:
            return json.loads(self.arguments)
        except ValueError:
            return None


def call_id(sequence: GrowingSequence, number: int, prefix: str = "call_") -> str:
    """The id of a call: a function of the request's id, so that another process gives the same one."""
    name = f"{sequence.request.spec.request}/{sequence.index}/{number}"
    return prefix + blake2b(name.encode(), digest_size=12).hexdigest()


def parts_of(pieces: Iterable[TextPiece]) -> list[TextPiece | ToolCall]:
    """The texts and the calls of an answer that is over, in order. What turned out to be no call is content."""
    parts: list[TextPiece | ToolCall] = []
    newest, n_begun = ToolCall(0, ""), 0
    for piece in pieces:
        match piece.channel:
            case Channel.CALL:
                newest = ToolCall(n_begun, piece.text)
                n_begun += 1
                parts.append(newest)
            case Channel.ARGUMENTS:
                newest.arguments += piece.text
            case Channel.NO_CALL:
                parts.remove(newest)
                parts.append(TextPiece(Channel.CONTENT, piece.text))
            case _:
                parts.append(piece)
    return parts


def calls_in(pieces: Iterable[TextPiece]) -> tuple[list[TextPiece], list[ToolCall]]:
    """The parts of an answer that is over: its texts, and its calls."""
    parts = parts_of(pieces)
    return [part for part in parts if isinstance(part, TextPiece)], [part for part in parts if isinstance(part, ToolCall)]
