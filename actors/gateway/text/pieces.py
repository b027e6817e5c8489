"""The parts of an answer's text, and what splits a text into them. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol


class Channel(StrEnum):
    """What a part of an answer is."""

    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"  # a call of a tool begins; the text is the tool's name
    ARGUMENTS = "arguments"  # more of the JSON text of the newest call's arguments
    NO_CALL = "no_call"  # the newest call turns out to be none; the text is all that the model has written in its place


class TextPiece(NamedTuple):
    """A part of an answer in one channel; its text is not empty."""

    channel: Channel
    text: str


class Splitter(Protocol):
    """Splits one text. Invariant: the texts of the channels do not depend on how the text was cut into parts."""

    @property
    def is_reasoning(self) -> bool:
        """True if the next character belongs to the reasoning, as far as is known."""
        ...

    def push(self, text: str) -> list[TextPiece]:
        """Take the next part of the text; returns what it makes certain, in order."""
        ...

    def flush(self) -> list[TextPiece]:
        """The text is over; returns what was held back."""
        ...
