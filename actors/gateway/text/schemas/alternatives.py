"""Whether the schemas of a `oneOf` still exclude each other once they are narrowed.

The library of grammars takes a `oneOf` only if no value matches two of its schemas. It sees the narrowed ones, whose objects
have no unnamed keys. An answer that follows one of them has to differ from all others as the client has sent them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from llguidance import LLMatcher

from actors.gateway.text.schemas.parts import parts_of

_KEY = "oneOf"


def has_overlap(schema: dict[str, Any], narrow: dict[str, Any]) -> bool:
    """True if an answer that follows `narrow`, made of `schema`, may match more than one schema of a `oneOf` in it."""
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return any(_overlaps(given, narrowed, definitions) for given, narrowed in _choices(schema, narrow))


def _choices(schema: Any, narrow: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Each `oneOf` that narrowing has changed: as it was, and as it is."""
    if not isinstance(schema, dict) or schema == narrow:
        return
    if isinstance(given := schema.get(_KEY), list) and given != narrow[_KEY]:
        yield given, narrow[_KEY]
    for inner, narrow_inner in zip(parts_of(schema), parts_of(narrow), strict=False):  # closed objects have one part more
        yield from _choices(inner, narrow_inner)


def _overlaps(given: list[Any], narrow: list[Any], definitions: dict[str, Any]) -> bool:
    """Any two places differ in a bit, so two questions for each bit compare all given schemas with all narrowed others."""
    for bit in range((len(given) - 1).bit_length()):
        for value in (0, 1):
            ours = [one for at, one in enumerate(given) if at >> bit & 1 == value and one != narrow[at]]
            others = [one for at, one in enumerate(narrow) if at >> bit & 1 != value]
            if ours and _is_refused({**definitions, _KEY: [{"anyOf": ours}, {"anyOf": others}]}):
                return True
    return False


def _is_refused(schema: dict[str, Any]) -> bool:
    return _KEY in LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(json.dumps(schema)))
