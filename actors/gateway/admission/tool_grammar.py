"""The grammar of a request with tools: forced calls, or an answer that may be a call instead."""

from __future__ import annotations

import json

from actors.gateway.requests.refusals import Refusal
from actors.gateway.text.grammar_compiler import grammar_compiler
from actors.gateway.text.grammars import GrammarError
from actors.gateway.text.tools.dialects import Dialect
from actors.gateway.text.tools.forced import arguments_grammar, grammar_of
from actors.gateway.text.tools.offered import OfferedTools, Tool
from messages.generation.grammar import Grammar, GrammarKind


def with_calls(wanted: Grammar | None, field: str, tools: OfferedTools, dialect: Dialect) -> tuple[Grammar | None, str]:
    """(the grammar, the field that asks for it) of a request with tools. `wanted`: the grammar of an answer without calls.

    Raises: Refusal when both a call and something else must be written.
    """
    if tools.is_required:
        if wanted is not None:
            raise Refusal("invalid", f"{field}: expected nothing beside a {tools.choice_field} that forces a call", field=field)
        return grammar_of(tools, dialect), tools.choice_field
    if wanted is not None and wanted.kind is GrammarKind.JSON_SCHEMA:
        return grammar_of(tools, dialect, answer=wanted), field
    return wanted, field


async def check_schemas(wanted: Grammar | None, tools: OfferedTools, caller: bytes = b"") -> None:
    """Check the schemas that must hold exactly, each by itself as it is checked where there are no tools: that of an answer
    without calls, and those of strict tools. Raises: GrammarError."""
    if wanted is not None and wanted.kind is GrammarKind.JSON_SCHEMA:
        await grammar_compiler().compile(wanted, caller=caller)
    for _, tool in tools.callable_tools:
        if tool.is_strict:
            await grammar_compiler().compile(_grammar_of(tool), caller=caller)


async def schema_at_fault(tools: OfferedTools, caller: bytes = b"") -> tuple[str, str]:
    """The field of the first schema that cannot be enforced, and why; "" if all can."""
    for _, tool in tools.callable_tools:
        try:
            await grammar_compiler().compile(_grammar_of(tool), caller=caller)
        except GrammarError as error:
            return tool.schema_field, str(error)
    return "", ""


def _grammar_of(tool: Tool) -> Grammar:
    """The grammar of a tool's arguments alone. Keywords that cannot be enforced are left aside unless the tool is strict."""
    if not tool.is_strict:
        return arguments_grammar(tool)
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps({"type": "object", **tool.parameters}))
