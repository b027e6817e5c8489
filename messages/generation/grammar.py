"""A grammar that the text of an answer follows."""

from __future__ import annotations

from enum import StrEnum

from messages.wire.message import LongText, StrictPart


class GrammarKind(StrEnum):
    """The language of a grammar."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"  # a JSON list of strings, one of which is the answer
    LLGUIDANCE = "llguidance"  # a grammar of the library llguidance, as JSON; admission turns all others into it


class Grammar(StrictPart, frozen=True):
    """What the text of an answer must be. Tokens that would break it are never sampled."""

    kind: GrammarKind
    text: LongText
