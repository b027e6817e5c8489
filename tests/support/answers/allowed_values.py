"""Which values a schema's grammar lets through."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from actors.gateway.text.grammars import compile_grammar
from messages.generation.grammar import Grammar, GrammarKind


def is_allowed(schema: dict[str, Any], value: Any) -> bool:
    """True if the grammar of the schema matches the value, as `json.dumps` writes it without escapes for letters."""
    grammar = compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema)))
    matcher = LLMatcher(LLTokenizer("byte"), grammar.text, log_level=0)
    text = json.dumps(value, ensure_ascii=False).encode()
    return matcher.try_consume_tokens(list(text)) == len(text) and matcher.is_accepting()
