"""The parts of an answer's text, and what splits a text into them. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from messages.public import Channel


class TextPiece(NamedTuple):
    """A part of an answer in one channel; its text is not empty."""

    channel: Channel
    text: str


class Splitter(Protocol):
    """Splits one text. Invariant: the texts of the channels do not depend on how the text was cut into parts."""

    def push(self, text: str) -> list[TextPiece]:
        """Take the next part of the text; returns what it makes certain, in order."""
        ...

    def flush(self) -> list[TextPiece]:
        """The text is over; returns what was held back."""
        ...
