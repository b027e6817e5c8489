"""Grammars at admission: all kinds become one, and what cannot be enforced is refused with its reason."""

from __future__ import annotations

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.models.folder_text import FolderText
from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.generation.grammar import Grammar, GrammarKind
from messages.wire.message import MAX_LONG_CHARACTERS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def vocabulary(smollm2_text: FolderText) -> LLTokenizer:
    """The model's tokens as llguidance sees them, which takes seconds to make."""
    return LLTokenizer(smollm2_text.tokenizer.to_str())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (GrammarKind.JSON_SCHEMA, '{"type": "object"}'),
        (GrammarKind.REGEX, "[a-z]{3}"),
        (GrammarKind.LARK, 'start: "a" | "b"'),
        (GrammarKind.LARK, 'start: "<[2]>" | /<[0-9]>/ // <[2]>\n | "b" # <|im_end|>'),
        (GrammarKind.CHOICE, json.dumps(['with "quotes"', "back\\slash", "été"])),
    ],
)
def test_every_kind_becomes_one_that_compiles(kind: GrammarKind, text: str) -> None:
    compiled = compile_grammar(Grammar(kind=kind, text=text))
    assert compiled.kind is GrammarKind.LLGUIDANCE
    assert compile_grammar(compiled) == compiled


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (GrammarKind.JSON_SCHEMA, '{"type": "object", "uniqueItems": true}', r'\["uniqueItems"\]; a schema without it'),
        (GrammarKind.JSON_SCHEMA, '{"not": {"type": "object"}}', r'\["not"\]; a schema without them'),
        (GrammarKind.JSON_SCHEMA, '{"type": "objekt"}', "objekt"),
        (GrammarKind.JSON_SCHEMA, "{", "EOF"),
        (GrammarKind.JSON_SCHEMA, '{"$ref": "#"}', "one that nothing matches"),
        (GrammarKind.JSON_SCHEMA, '{"$ref": "#/$defs/x"}', r"\$defs/x"),
        (GrammarKind.JSON_SCHEMA, '{"type": "string", "format": "zipcode"}', 'format: zipcode; a "pattern"'),
        (GrammarKind.JSON_SCHEMA, '{"type": "string", "maxLength": 1e30}', "maxLength"),
        (GrammarKind.JSON_SCHEMA, '{"type": "object", "patternProperties": {"^a(?=b)": {}}}', "look-ahead"),
        (GrammarKind.JSON_SCHEMA, '{"oneOf": [{"type": "number"}, {"type": "integer"}]}', "oneOf"),
        (GrammarKind.JSON_SCHEMA, '{"type": "integer", "minimum": 5, "maximum": 3}', "minimum"),
        (GrammarKind.JSON_SCHEMA, '{"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}}', "uniqueItems"),
        (GrammarKind.LARK, "start: T\nT: /a+/ & /b+/", "one that nothing matches"),
        (GrammarKind.REGEX, "[a", "unclosed"),
        (GrammarKind.LARK, "start: other", "other"),
        (GrammarKind.LARK, 'start: <[2]> "a"', r"the token <\[2\]>"),
        (GrammarKind.LARK, 'start: "\\"" /"\\// <[300]>', r"the token <\[300\]>"),
        (GrammarKind.LARK, "start: <|im_end|>", r"the token <\|im_end\|>"),
        (GrammarKind.LLGUIDANCE, '{"grammars": [{"lark_grammar": "start: <[^2]>"}]}', r"the token <\[\^2\]>"),
        (GrammarKind.LLGUIDANCE, "start: <[2]>", r"the token <\[2\]>"),
        (GrammarKind.CHOICE, '["a", 7]', "a list of texts"),
        (GrammarKind.CHOICE, "[", "Expecting value"),
        (GrammarKind.LLGUIDANCE, "no grammar", "no grammar"),
    ],
)
def test_what_cannot_be_enforced_is_refused(kind: GrammarKind, text: str, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        compile_grammar(Grammar(kind=kind, text=text))


def test_a_schema_that_grows_beyond_what_ranks_read_is_refused() -> None:
    names = [f"k{number}" for number in range(700)]
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}}
    text = json.dumps({"type": "object", "properties": dict.fromkeys(names, inner), "required": names})
    assert len(text) < MAX_LONG_CHARACTERS
    with pytest.raises(
        GrammarError, match=rf"^\d+ characters in the form that workers read, which may have {MAX_LONG_CHARACTERS}$"
    ):
        compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=text))


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        (GrammarKind.JSON_SCHEMA, '{"type": "object", "maxProperties": 0}', "{}"),
        (GrammarKind.REGEX, "a+b", "aab"),
        (GrammarKind.LARK, 'start: "x" | "y"', "y"),
        (GrammarKind.CHOICE, '["yes", "no"]', "no"),
    ],
)
def test_reasoning_may_come_before_the_answer(
    smollm2_text: FolderText, vocabulary: LLTokenizer, is_open: bool, kind: GrammarKind, text: str, answer: str
) -> None:
    marks = ReasoningMarks("<think>", "</think>", is_open=is_open)
    source = compile_grammar(Grammar(kind=kind, text=text), marks).text

    def matches(written: str) -> bool:
        matcher = LLMatcher(vocabulary, source)
        ids = smollm2_text.encode(written)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    thought = "Hm } </thi\n</think>\n\n"
    assert matches(("" if is_open else "<think>") + thought + answer)
    assert matches(answer) is not is_open, "a model that has not begun to think may answer at once"
    assert not matches(("" if is_open else "<think>") + thought + "?")
