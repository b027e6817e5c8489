"""Which values a schema's grammar lets through, and texts that it lets through by chance."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from actors.gateway.text.grammars import compile_grammar
from messages.generation.grammar import Grammar, GrammarKind

_LONGEST = 200  # bytes of a text by chance
_ENDS = frozenset(b'"}]')  # with others alone, most texts would have no end
_BYTES = LLTokenizer("byte")


def is_allowed(schema: dict[str, Any], value: Any) -> bool:
    """True if the grammar of the schema matches the value, as `json.dumps` writes it without escapes for letters."""
    grammar = compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(schema)))
    matcher = LLMatcher(_BYTES, grammar.text, log_level=0)
    text = json.dumps(value, ensure_ascii=False).encode()
    return matcher.try_consume_tokens(list(text)) == len(text) and matcher.is_accepting()


def written_by_chance(grammar: str, rng: Random) -> str | None:
    """A text that matches a grammar of kind LLGUIDANCE, byte by byte from the masks; None if it would be a long one."""
    matcher, written = LLMatcher(_BYTES, grammar, log_level=0), bytearray()
    while len(written) < _LONGEST and not matcher.is_stopped():
        mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        ids = set(np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist())
        may_end, allowed = _BYTES.eos_token in ids, sorted(ids & set(range(256)))
        if not allowed or (may_end and rng.random() < 0.5):
            break
        ends = [byte for byte in allowed if byte in _ENDS]
        byte = rng.choice(ends if ends and rng.random() < len(written) / _LONGEST + 0.3 else allowed)
        matcher.consume_token(byte)
        written.append(byte)
    return written.decode() if matcher.is_accepting() else None
