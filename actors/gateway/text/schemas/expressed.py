"""A JSON schema in the keywords that the library of grammars knows."""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.exclusive import with_exclusive_choices
from actors.gateway.text.schemas.named_keys import with_named_keys
from actors.gateway.text.schemas.text_formats import with_known_formats

_OPTIONS = "x-guidance"  # a key of the library's own, with which a schema could turn its checks off


def expressed(schema: Any) -> Any:
    """The schema as the library knows it. What matches it, matches the schema that was given."""
    if isinstance(schema, dict) and _OPTIONS in schema:
        schema = {key: value for key, value in schema.items() if key != _OPTIONS}
    return with_known_formats(with_named_keys(with_exclusive_choices(schema)))
