"""Finds the reasoning in a growing text: what stands between two marks, such as `<think>` and `</think>`. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec

from actors.gateway.text.blank_run import BLANKS, BlankRun
from actors.gateway.text.pieces import Channel, Splitter, TextPiece
from actors.gateway.text.stop_strings import held_length


class ReasoningMarks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The texts around the reasoning of an answer. `is_open`: the prompt ends within the reasoning, where the answer begins."""

    begin: str
    end: str
    is_open: bool = False
    is_shown: bool = True  # to the client; else it is left out


class _Part(Enum):
    BEFORE = "before"  # only blanks have come, or a part of the first mark
    REASONING = "reasoning"
    AFTER = "after"  # the mark at the end has come, and only blanks since
    CONTENT = "content"


class ReasoningSplitter(Splitter):
    """Reasoning first, between its marks, then content.

    Blanks around the reasoning are dropped. A text that does not begin with the first mark is content as a whole, even if marks
    come later. What may become a mark, and blanks that may stand before one, are held back.
    """

    def __init__(self, marks: ReasoningMarks) -> None:
        self._marks, self._held, self._blanks = marks, "", BlankRun()
        self._part = _Part.REASONING if marks.is_open else _Part.BEFORE
        self._has_text = False  # some of the reasoning has been returned
        self._may_repeat = marks.is_open  # some models write the first mark although the prompt ends with it

    @property
    def is_reasoning(self) -> bool:
        """True if the next character belongs to the reasoning, as far as is known."""
        return self._part is _Part.REASONING

    @property
    def is_over(self) -> bool:
        """True if no text that follows belongs to the reasoning."""
        return self._part in (_Part.AFTER, _Part.CONTENT)

    def push(self, text: str) -> list[TextPiece]:
        if self._part is _Part.CONTENT:
            return self._pieces("", text)
        if self._blanks.keeps(text):
            return []
        self._held += self._blanks.take() + text
        reasoning = ""
        if self._part is _Part.BEFORE:
            self._begin()
        if self._part is _Part.REASONING:
            reasoning = self._reason()
        if self._part is _Part.AFTER:
            self._held = self._held.lstrip(BLANKS)
            if self._held:
                self._part = _Part.CONTENT
        content = self._take() if self._part is _Part.CONTENT else ""
        self._blanks.may_begin(self._held, text)
        return self._pieces(reasoning, content)

    def flush(self) -> list[TextPiece]:
        rest = self._take()
        if self._part is _Part.REASONING:
            return self._pieces(rest, "")
        return self._pieces("", rest if self._part is not _Part.AFTER else "")

    def _pieces(self, reasoning: str, content: str) -> list[TextPiece]:
        pieces = [TextPiece(Channel.REASONING, reasoning)] if reasoning and self._marks.is_shown else []
        return [*pieces, TextPiece(Channel.CONTENT, content)] if content else pieces

    def _take(self) -> str:
        held, self._held = self._held + self._blanks.take(), ""
        return held

    def _begin(self) -> None:
        """Decide whether the text begins with the first mark, as soon as it can be known."""
        bare, begin = self._held.lstrip(BLANKS), self._marks.begin
        if bare.startswith(begin):
            self._part, self._held = _Part.REASONING, bare[len(begin) :]
        elif not begin.startswith(bare):
            self._part = _Part.CONTENT

    def _reason(self) -> str:
        """The reasoning that is certain now; goes on to the next part at the second mark."""
        if not self._has_text:
            self._held = self._held.lstrip(BLANKS)
            if self._may_repeat and self._is_first_mark_repeated():
                return ""
        head, mark, rest = self._held.partition(self._marks.end)
        if mark:
            self._part, self._held = _Part.AFTER, rest
            return head.rstrip(BLANKS)
        n_safe = len(self._held[: len(self._held) - held_length(self._held, (self._marks.end,))].rstrip(BLANKS))
        safe, self._held = self._held[:n_safe], self._held[n_safe:]
        self._has_text = self._has_text or bool(safe)
        return safe

    def _is_first_mark_repeated(self) -> bool:
        """True while the text may still repeat the first mark, which is removed."""
        begin = self._marks.begin
        if self._held.startswith(begin):
            self._held, self._may_repeat = self._held[len(begin) :].lstrip(BLANKS), False
            return False
        return begin.startswith(self._held)
