"""Characters that an answer would have to have, and that no token of the model can write.

Some byte-level vocabularies lack bytes that the texts of their training did not have: SmolLM2's has no F1 and no F2, so no
character from U+40000 to U+BFFFF. The library of grammars finds that out in the middle of an answer, where such a character is
the only continuation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from actors.gateway.text.grammars import GrammarError
from actors.gateway.text.schemas.parts import parts_of
from actors.gateway.text.tools.offered import OfferedTools
from messages.generation.grammar import Grammar, GrammarKind

_ASCII = frozenset(range(0x80))  # JSON has escapes for control characters; all others are in every vocabulary


def check_characters(grammar: Grammar | None, tools: OfferedTools | None, missing_bytes: frozenset[int]) -> None:
    """Return if the values and names in schemas, and the choices, can be written without `missing_bytes`. Expressions and Lark
    grammars are not looked into. Raises: GrammarError."""
    missing = missing_bytes - _ASCII
    if not missing:
        return
    with suppress(RecursionError):  # the process that compiles grammars refuses what is nested so deeply
        for _, tool in () if tools is None else tools.callable_tools:
            _check(_texts(tool.parameters), missing)
        if grammar is None or (grammar.text.isascii() and "\\u" not in grammar.text):
            return
        if grammar.kind is GrammarKind.JSON_SCHEMA:
            _check(_texts(_read(grammar.text)), missing)
        elif grammar.kind is GrammarKind.CHOICE:
            _check(_texts({"enum": _read(grammar.text)}), missing)


def _check(texts: Iterator[str], missing: frozenset[int]) -> None:
    for text in texts:
        if text.isascii() or missing.isdisjoint(text.encode(errors="surrogatepass")):
            continue
        character = next(one for one in text if not missing.isdisjoint(one.encode(errors="surrogatepass")))
        raise GrammarError(f"the character U+{ord(character):04X}, which this model has no tokens for")


def _read(text: str) -> Any:
    """A text that is no JSON is left to the library, whose error names the place."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _texts(schema: Any) -> Iterator[str]:
    """The values and the names that a schema fixes, as JSON has them."""
    if not isinstance(schema, Mapping):
        return
    for key in ("const", "enum"):
        if key in schema:
            yield json.dumps(schema[key], ensure_ascii=False)
    names = schema.get("properties")
    if isinstance(names, dict):
        yield from names
    for inner in parts_of(dict(schema)):
        yield from _texts(inner)
