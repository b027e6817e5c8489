"""A grammar that the text of an answer follows."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from messages.wire.message import LongText, StrictPart


class GrammarKind(StrEnum):
    """The language of a grammar."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"  # a JSON list of strings, one of which is the answer
    # of the library llguidance, as JSON; admission turns all others into it. Or, from admission alone, a `BoundedThinking`
    LLGUIDANCE = "llguidance"


class Grammar(StrictPart, frozen=True):
    """What the text of an answer must be. Tokens that would break it are never sampled."""

    kind: GrammarKind
    text: LongText


class BoundedThinking(msgspec.Struct, frozen=True, tag_field="kind", tag="bounded_thinking"):
    """An answer whose reasoning has a limit: after that many tokens of reasoning, the tokens of its end mark follow."""

    n_tokens: int
    begin: list[int]  # the answer has reasoning if it begins with these tokens; []: it begins within the reasoning
    end: list[int]  # the tokens of the end mark
    end_text: str  # the end mark
    grammar: LongText = ""  # of llguidance, for the whole answer; "": any text

    def as_grammar(self) -> Grammar:
        """The text that ranks read."""
        return Grammar(kind=GrammarKind.LLGUIDANCE, text=msgspec.json.encode(self).decode())

    @staticmethod
    def read(text: str) -> BoundedThinking | None:
        """The limit in the text of a grammar of kind LLGUIDANCE; None if it has none."""
        is_bounded = text.startswith('{"kind":"bounded_thinking"')
        return msgspec.json.decode(text, type=BoundedThinking) if is_bounded else None
