"""Grammars at admission: a JSON schema, a regular expression, a Lark grammar or a choice becomes the grammar that ranks follow.

Everything is checked before anything is computed. Schemas follow llguidance: a keyword that it does not enforce is refused, and
so is a grammar that nothing matches, such as a `$ref` to itself.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLTokenizer

from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.schemas.alternatives import has_overlap
from actors.gateway.text.schemas.exact_numbers import inexact_number
from actors.gateway.text.schemas.expressed import expressed
from actors.gateway.text.schemas.narrowed import narrowed
from actors.gateway.text.schemas.references import looping_reference
from actors.gateway.text.schemas.repeated_names import counts_repeated_names
from messages.generation.grammar import Grammar, GrammarKind
from messages.wire.message import MAX_LONG_CHARACTERS

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_NOTHING_MATCHES = "NoExtensionBias"  # of llguidance
_OVERLAP = "oneOf: a value may match two of its schemas, or these are too hard to tell apart; anyOf takes any of them"
_UNSUPPORTED_ONE_OF = (
    "oneOf constraints are not supported"  # of llguidance, which then names an option that clients do not have
)
_HINTS = {  # how a reason of llguidance begins -> what the client can do
    "Unknown format: ": '; a "pattern" beside it is followed in its place',
    'Unimplemented keys: ["uniqueItems"]': "; a schema without it is followed (pydantic writes it for a set, not for a list)",
    "Unimplemented keys: ": "; a schema without them is followed",
}
# of a Lark grammar: texts, comments and patterns, and what names tokens outside of them, such as <[2]> or <|im_end|>
_PARTS = re.compile(r'"(?:\\.|[^"\\])*"|(?://|#)[^\n]*|/(?:\\.|[^/\\\n])+/|(?P<token><[^<>\s]+>)')
# White space in a JSON text is what json.dumps writes. If any were allowed, small models would write nothing else.
_JSON_OPTIONS: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarError(ValueError):
    """The grammar cannot be used; the text says why."""


@lru_cache(maxsize=256)
def compile_grammar(grammar: Grammar, reasoning: ReasoningMarks | None = None) -> Grammar:
    """The grammar in the form that ranks follow, of kind LLGUIDANCE. `reasoning`: any text between these marks may come before
    it. Blocks for a millisecond, and longer for large schemas.

    Raises: GrammarError.
    """
    source = _source(grammar)
    if reasoning is not None:
        source = _after_reasoning(source, reasoning)
    check_length(source)
    is_wrong, reasons = LLMatcher.validate_grammar_with_warnings(source)
    if is_wrong:
        raise GrammarError("; ".join(map(_with_hint, reasons)))
    _begin(source)
    return Grammar(kind=GrammarKind.LLGUIDANCE, text=source)


def _with_hint(reason: str) -> str:
    """A reason of the library, with what the client can do about it."""
    if reason.startswith(_UNSUPPORTED_ONE_OF):
        return _OVERLAP
    first, *place = reason.split("\n")
    return "\n".join([first + next((hint for begin, hint in _HINTS.items() if first.startswith(begin)), ""), *place])


def check_length(source: str) -> None:
    """Return if ranks read a grammar of this length: closed objects and calls of tools may have made it longer than what the
    client has sent. Raises: GrammarError."""
    if len(source) > MAX_LONG_CHARACTERS:
        raise GrammarError(f"{len(source)} characters in the form that workers read, which may have {MAX_LONG_CHARACTERS}")


@cache
def _bytes() -> LLTokenizer:
    """A vocabulary of single bytes."""
    return LLTokenizer("byte")


def _begin(source: str) -> None:
    """Look for the first byte of a text that matches. Raises: GrammarError if there is none, or it is too hard to find."""
    matcher = LLMatcher(_bytes(), source, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        reason, _, _ = matcher.get_error().partition("\n")  # lines about the parser's state follow
        raise GrammarError("one that nothing matches" if reason == _NOTHING_MATCHES else reason)


def _source(grammar: Grammar) -> str:
    """A grammar of any kind in llguidance's own format. Raises: GrammarError."""
    try:
        match grammar.kind:
            case GrammarKind.JSON_SCHEMA:
                return LLMatcher.grammar_from_json_schema(_narrowed(grammar.text), defaults=_JSON_OPTIONS)
            case GrammarKind.REGEX:
                return LLMatcher.grammar_from_regex(grammar.text)
            case GrammarKind.LARK:
                _check_names_no_tokens(grammar.text)
                return LLMatcher.grammar_from_lark(grammar.text)
            case GrammarKind.CHOICE:
                return LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(one) for one in _choices(grammar.text)))
            case GrammarKind.LLGUIDANCE:
                for one in _lark_in(grammar.text):
                    _check_names_no_tokens(one)
                return grammar.text
    except ValueError as error:
        raise GrammarError(str(error)) from None


def _check_names_no_tokens(lark: str) -> None:
    """Return if a Lark grammar has texts alone. A token is checked here against other numbers than the model's, and one that
    ends an answer would end it amid the grammar. Raises: GrammarError."""
    if token := next(filter(None, (part["token"] for part in _PARTS.finditer(lark))), None):
        raise GrammarError(f"the token {token}; expected texts in quotes, because tokens cannot be named here")


def _lark_in(source: str) -> list[str]:
    """The Lark grammars in llguidance's own format."""
    try:
        parts = json.loads(source).get("grammars", [])
        return [part["lark_grammar"] for part in parts if isinstance(part.get("lark_grammar"), str)]
    except (ValueError, TypeError, AttributeError):
        return [source]  # the library reads what is no JSON as Lark


def _narrowed(schema: str) -> str:
    """A JSON schema as answers follow it. A text that is no JSON is left to the library, whose error names the place.

    Raises: GrammarError for a number that the library rounds, a `$ref` to itself, a `oneOf` that answers could match twice, and
    a `minProperties` that they could meet with one name."""
    try:
        read = json.loads(schema)
    except ValueError:
        return schema
    if number := inexact_number(read, _bytes()):
        raise GrammarError(f"the number {number}, which has too many digits to be written exactly")
    if reference := looping_reference(read):
        raise GrammarError(f"one that nothing matches: the $ref {reference} leads to itself")
    read = expressed(read)
    if counts_repeated_names(read):
        raise GrammarError("minProperties: two properties that the schema does not name could have the same name")
    narrow = narrowed(read)
    if isinstance(read, dict) and has_overlap(read, narrow):
        raise GrammarError('oneOf: an object may match two of its schemas; "additionalProperties": false keeps them apart')
    return json.dumps(narrow)


def _after_reasoning(source: str, marks: ReasoningMarks) -> str:
    """The grammar of an answer that matches `source` once its reasoning is over."""
    grammar = json.loads(source) if source.lstrip().startswith("{") else {"grammars": [{"lark_grammar": source}]}
    answer, *others = grammar["grammars"]
    thought = "thought blanks" if marks.is_open else f"({json.dumps(marks.begin)} thought blanks)?"
    rules = f"start: {thought} @answer\nthought[suffix={json.dumps(marks.end)}]: /(?s:.*)/\nblanks: /[ \\t\\r\\n]*/\n"
    return json.dumps({**grammar, "grammars": [{"lark_grammar": rules}, {**answer, "name": "answer"}, *others]})


def _choices(text: str) -> list[str]:
    """The texts in a JSON list. Raises: GrammarError."""
    choices = json.loads(text)
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one for one in choices):
        raise GrammarError("a list of texts that are not empty")
    return choices
