"""Calls of tools in an answer: their ids, and the calls of an answer that is over. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.text.pieces import Channel, TextPiece

# in JSON: a whole text, the begin of one that is cut off, a bracket, or a comma
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|["{}\[\],]', re.DOTALL)
_CLOSED_BY = {"{": "}", "[": "]"}


@dataclass
class ToolCall:
    """One call. `number`: counts those that have begun in its answer, from 0. `arguments`: JSON text, perhaps cut off."""

    number: int
    name: str
    arguments: str = ""

    @property
    def input(self) -> dict[str, Any] | None:
        """The arguments as an object; None if they were cut off."""
        return _object_in(self.arguments)

    @property
    def input_so_far(self) -> dict[str, Any]:
        """The arguments as an object; of those that were cut off, the values that are whole (no half of a text)."""
        if (whole := self.input) is not None:
            return whole
        return next((found for text in _cut_at_values(self.arguments) if (found := _object_in(text)) is not None), {})


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cut_at_values(text: str) -> list[str]:
    """JSON that was cut off, cut at its last marks instead and with its open brackets closed, the longest first. One of these
    is whole, because the last mark ends a value or a key, and before a key is a comma or a bracket."""
    cuts, closers = [(0, "")], list[str]()
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark == '"':
            break
        if mark in _CLOSED_BY:
            closers.append(_CLOSED_BY[mark])
        elif mark in "}]" and closers:
            closers.pop()
        cuts = [cuts[-1], (found.start() if mark == "," else found.end(), "".join(reversed(closers)))]
    return [text[:stop] + end for stop, end in reversed(cuts)]


def call_id(sequence: GrowingSequence, number: int, prefix: str = "call_") -> str:
    """The id of a call: a function of the request's id, so that another process gives the same one."""
    name = f"{sequence.spec.request}/{sequence.index}/{number}"
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
