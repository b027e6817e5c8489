"""How the text of the answers to one request is split into channels.

It is recorded with the request, so that every process splits the same text alike.
"""

from __future__ import annotations

import msgspec

from actors.gateway.text.pieces import Channel, Splitter, TextPiece
from actors.gateway.text.reasoning_text import ReasoningMarks, ReasoningSplitter
from actors.gateway.text.tools.dialects import ToolRules


class Splitting(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the text of the answers to one request is split."""

    reasoning: ReasoningMarks | None = None
    tools: ToolRules | None = None

    def splitter(self) -> Splitter:
        """A splitter for one text."""
        reasoning = ReasoningSplitter(self.reasoning) if self.reasoning is not None else WholeSplitter()
        return reasoning if self.tools is None else SplitterChain(reasoning, self.tools.splitter())


class WholeSplitter(Splitter):
    """Everything is content."""

    def push(self, text: str) -> list[TextPiece]:
        return [TextPiece(Channel.CONTENT, text)] if text else []

    def flush(self) -> list[TextPiece]:
        return []


class SplitterChain(Splitter):
    """What is content for the first splitter is split by the second one."""

    def __init__(self, first: Splitter, second: Splitter) -> None:
        self._first, self._second = first, second

    def push(self, text: str) -> list[TextPiece]:
        return self._split(self._first.push(text))

    def flush(self) -> list[TextPiece]:
        return self._split(self._first.flush()) + self._second.flush()

    def _split(self, pieces: list[TextPiece]) -> list[TextPiece]:
        found: list[TextPiece] = []
        for piece in pieces:
            found += self._second.push(piece.text) if piece.channel is Channel.CONTENT else [piece]
        return found
