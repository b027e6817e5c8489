"""Grammars that force a call, and how a model without tools in its template is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.bodies.fields.anthropic_tools import as_openai
from actors.gateway.bodies.fields.wanted_tools import wanted_tools
from actors.gateway.text.chat_template import ChatTemplate
from actors.gateway.text.grammars import GrammarError, compile_grammar
from actors.gateway.text.models.folder_text import FolderText
from actors.gateway.text.pieces import Channel
from actors.gateway.text.tools.dialects import Dialect
from actors.gateway.text.tools.forced import grammar_of
from actors.gateway.text.tools.telling import told, with_short_ids
from messages.generation.grammar import Grammar, GrammarKind

pytestmark = pytest.mark.slow

CITY = {"type": "object", "properties": {"city": {"type": "string", "format": "odd"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY, "description": "Looks <|im_end|> outside"}},
    {"type": "function", "function": {"name": "now"}},
]
CALLED: list[Any] = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "warm"},
    {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
]
CALLS = {
    Dialect.HERMES: '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    Dialect.LLAMA_JSON: '{"name": "get_weather", "parameters": {"city": "Rome"}}; {"name": "now", "parameters": {}}',
    Dialect.MISTRAL: '[{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "now", "arguments": {}}]',
}
CALLS |= {Dialect.PYTHONIC: CALLS[Dialect.MISTRAL], Dialect.QWEN_XML: CALLS[Dialect.HERMES]}


@pytest.fixture(scope="module")
def vocabulary(smollm2_text_folder: Path) -> LLTokenizer:
    return LLTokenizer((smollm2_text_folder / "tokenizer.json").read_text(encoding="utf-8"))


def matches(vocabulary: LLTokenizer, grammar: Grammar, text: str) -> bool:
    matcher = LLMatcher(vocabulary, compile_grammar(grammar).text)
    ids = vocabulary.tokenize_str(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize("dialect", list(Dialect))
def test_what_is_forced_is_what_is_found(dialect: Dialect, vocabulary: LLTokenizer) -> None:
    offered = wanted_tools({"tools": TOOLS, "tool_choice": "required"})
    assert offered is not None
    grammar, text = grammar_of(offered, dialect), CALLS[dialect]
    assert matches(vocabulary, grammar, text)
    for wrong in ("text", text.replace("get_weather", "other"), text.replace('"Rome"', "1"), text.replace("{}", '{"a": 1}')):
        assert not matches(vocabulary, grammar, wrong)
    splitter = offered.rules(dialect).splitter()
    found = splitter.push(text) + splitter.flush()
    assert [piece.text for piece in found if piece.channel is Channel.CALL] == ["get_weather", "now"]
    assert not [piece for piece in found if piece.channel is Channel.CONTENT]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_forced_call_that_is_cut_shows_no_marks(dialect: Dialect) -> None:
    offered = wanted_tools({"tools": TOOLS, "tool_choice": "required"})
    assert offered is not None
    text = CALLS[dialect]
    for stop in range(len(text) + 1):
        splitter = offered.rules(dialect).splitter()
        found = splitter.push(text[:stop]) + splitter.flush()
        assert not [piece for piece in found if piece.channel is Channel.CONTENT], text[:stop]
        named = [name for name in ("get_weather", "now") if f'"{name}"' in text[:stop]]
        assert [piece.text for piece in found if piece.channel is Channel.CALL] == named, text[:stop]


def test_a_choice_of_one_function_forces_one_call_of_it(vocabulary: LLTokenizer) -> None:
    named = wanted_tools({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "now"}}})
    older = wanted_tools({"functions": [tool["function"] for tool in TOOLS], "function_call": {"name": "now"}})
    one = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    for offered in (named, older):
        assert offered is not None
        grammar = grammar_of(offered, Dialect.HERMES)
        assert matches(vocabulary, grammar, one)
        assert not matches(vocabulary, grammar, f"{one}\n{one}")
        assert not matches(vocabulary, grammar, CALLS[Dialect.HERMES])
        assert len(offered.as_openai()) == 2, "the model is told of all"


def test_an_answer_beside_tools_is_calls_or_matches_its_schema(vocabulary: LLTokenizer) -> None:
    offered = wanted_tools({"tools": TOOLS})
    assert offered is not None
    schema = Grammar(
        kind=GrammarKind.JSON_SCHEMA, text=json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    )
    grammar = grammar_of(offered, Dialect.HERMES, answer=schema)
    assert matches(vocabulary, grammar, '{"a": 1}')
    assert matches(vocabulary, grammar, CALLS[Dialect.HERMES])
    assert not matches(vocabulary, grammar, '{"a": "b"}')


def test_a_strict_tool_needs_a_schema_that_can_be_enforced() -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    offered = wanted_tools({"tools": strict, "tool_choice": "required"})
    assert offered is not None
    with pytest.raises(GrammarError, match="odd"):
        compile_grammar(grammar_of(offered, Dialect.HERMES))


def test_which_tools_may_be_called() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "now"}]}}
    offered = wanted_tools({"tools": TOOLS, "tool_choice": allowed, "parallel_tool_calls": False})
    assert offered is not None
    assert (offered.callable_names, offered.is_required, offered.most_calls) == (("now",), False, 1)
    assert wanted_tools({"tools": TOOLS, "tool_choice": "none"}) is None
    assert wanted_tools({"tool_choice": "auto"}) is None


def test_a_template_without_tools_is_told_in_the_system_message(smollm2_text: FolderText) -> None:
    prompt = smollm2_text.decode(smollm2_text.encode_chat(turns_of(CALLED), TOOLS))
    assert prompt.startswith("<|im_start|>system\n# Tools\n")
    assert '{"name": "now"}' in prompt
    assert (
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
        in prompt
    )
    results = "<tool_response>\nwarm\n</tool_response>\n<tool_response>\nnoon\n</tool_response>"
    assert f"<|im_start|>user\n{results}<|im_end|>" in prompt
    ends = smollm2_text.encode_chat(turns_of(CALLED), TOOLS).count(smollm2_text.eos_tokens[-1])
    assert ends == 4, "of system, user, assistant and results: none of a tool's description"
    kept = told([{"role": "system", "content": "Be brief."}], TOOLS)
    assert kept[0]["content"].startswith("Be brief.\n\n# Tools")


def test_a_template_with_tools_gets_them_and_arguments_as_objects() -> None:
    source = (
        "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.name }}{% for c in m.tool_calls %}"
    )
    template = ChatTemplate(source + "{{ c.function.arguments.city }}{% endfor %}{% endfor %}", {})
    assert template.knows_tools
    assert template.render(turns_of(CALLED), TOOLS) == "get_weather now Romeget_weather"


def test_mistrals_templates_get_ids_of_nine_characters() -> None:
    turns = with_short_ids(turns_of(CALLED))
    assert turns[1]["tool_calls"][0]["id"] == turns[2]["tool_call_id"] != turns[3]["tool_call_id"]
    assert all(len(turn["tool_call_id"]) == 9 for turn in turns[2:])


def test_anthropics_blocks_become_calls_and_results() -> None:
    blocks: list[Any] = [{"type": "text", "text": "Hm."}, {"type": "tool_use", "id": "t", "name": "now", "input": {}}]
    answer = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "noon"}, {"type": "text", "text": "?"}],
    }
    turns = turns_of([one for message in ({"role": "assistant", "content": blocks}, answer) for one in as_openai(message, "m")])
    assert [(turn["role"], turn["content"]) for turn in turns] == [("assistant", "Hm."), ("tool", "noon"), ("user", "?")]
    assert turns[0]["tool_calls"][0]["function"] == {"name": "now", "arguments": {}}
    assert turns[1]["name"] == "now"
