"""A JSON schema in the keywords that the library of grammars knows."""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.exclusive import with_exclusive_choices
from actors.gateway.text.schemas.named_keys import with_named_keys
from actors.gateway.text.schemas.text_formats import with_known_formats


def expressed(schema: Any) -> Any:
    """The schema as the library knows it. What matches it, matches the schema that was given."""
    return with_known_formats(with_named_keys(with_exclusive_choices(schema)))
