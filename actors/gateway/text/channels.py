"""How the text of the answers to one request is split into channels.

It is recorded with the request, so that every process splits the same text alike.
"""

from __future__ import annotations

import msgspec

from actors.gateway.text.pieces import Channel, Splitter, TextPiece
from actors.gateway.text.reasoning_text import ReasoningMarks, ReasoningSplitter


class Splitting(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the text of the answers to one request is split."""

    reasoning: ReasoningMarks | None = None

    def splitter(self) -> Splitter:
        """A splitter for one text."""
        return ReasoningSplitter(self.reasoning) if self.reasoning is not None else WholeSplitter()


class WholeSplitter(Splitter):
    """Everything is content."""

    @property
    def is_reasoning(self) -> bool:
        return False

    def push(self, text: str) -> list[TextPiece]:
        return [TextPiece(Channel.CONTENT, text)] if text else []

    def flush(self) -> list[TextPiece]:
        return []
