"""The grammar of an answer that must call a tool: calls in the model's own dialect, with arguments that follow their schemas.

Where the model's own dialect is not JSON, the calls are in one that is and that the model is told of or knows. A keyword of a
schema that cannot be enforced is refused for strict tools, and ignored for others.
"""

from __future__ import annotations

import json
from typing import Any

from actors.gateway.text.schemas.expressed import expressed
from actors.gateway.text.schemas.narrowed import narrowed
from actors.gateway.text.tools.dialects import Dialect, forced_dialect
from actors.gateway.text.tools.offered import OfferedTools, Tool
from messages.generation.grammar import Grammar, GrammarKind

# what stands before the calls, before the arguments of one, after them, between two calls, and after all calls
_FORMS: dict[Dialect, tuple[str, str, str, str, str]] = {
    Dialect.HERMES: ("<tool_call>\n", '"arguments"', "}", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
    Dialect.LLAMA_JSON: ("", '"parameters"', "}", "; ", ""),
    Dialect.MISTRAL: ("[", '"arguments"', "}", ", ", "]"),
}
MOST_CALLS = 16  # in one answer: a small model may go on with the same call for ever
_WRITING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def grammar_of(offered: OfferedTools, dialect: Dialect, answer: Grammar | None = None) -> Grammar:
    """The grammar of answers that call a tool. `answer`: what an answer without calls must be, if there may be one."""
    before, key, after, between, end = _FORMS[forced_dialect(dialect)]
    rules = [_head(before, between, end, offered.most_calls or MOST_CALLS)]
    if answer is not None:
        rules[0] = rules[0].replace("start:", "start: answer | calls\ncalls:", 1)
        rules.append(f"answer: %json {_with_options(narrowed(expressed(json.loads(answer.text))), is_strict=True)}")
    called = offered.callable_tools
    rules.append("call: " + " | ".join(f"call_{at}" for at, _ in called))
    for at, tool in called:
        head = f'{{"name": {json.dumps(tool.name)}, {key}: '
        rules.append(f"call_{at}: {json.dumps(head)} arguments_{at} {json.dumps(after)}")
        rules.append(f"arguments_{at}: %json {_with_options(arguments_schema(tool), is_strict=tool.is_strict)}")
    return Grammar(kind=GrammarKind.LARK, text="\n".join(rules) + "\n")


def arguments_grammar(tool: Tool) -> Grammar:
    """The grammar of the arguments of a tool alone."""
    schema = _with_options(arguments_schema(tool), is_strict=tool.is_strict)
    return Grammar(kind=GrammarKind.LARK, text=f"start: %json {schema}\n")


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments: an object. It may have unnamed keys only if the tool's own schema says so."""
    schema = narrowed(expressed({"type": "object", **tool.parameters}))
    speaks_of_others = {"additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"} & set(schema)
    return schema if schema.get("properties") or speaks_of_others else schema | {"additionalProperties": False}


def _head(before: str, between: str, end: str, most: int) -> str:
    parts = [json.dumps(before)] if before else []
    parts.append("call" if most == 1 else f"call ({json.dumps(between)} call){{0,{most - 1}}}")
    return "start: " + " ".join([*parts, json.dumps(end)] if end else parts)


def _with_options(schema: Any, *, is_strict: bool) -> str:
    if not isinstance(schema, dict):
        return json.dumps(schema)
    return json.dumps({**schema, "x-guidance": {**_WRITING, "lenient": not is_strict}})
