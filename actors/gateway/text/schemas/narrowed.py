"""The JSON schema that an answer follows, of the one that a client has sent."""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.closed_objects import closed
from actors.gateway.text.schemas.quoted_patterns import with_quoted_patterns
from actors.gateway.text.schemas.required_tags import with_required_tags
from actors.gateway.text.schemas.short_times import with_short_times


def narrowed(schema: Any) -> Any:
    """The schema without what answers need not have. What matches it, matches the schema that was given."""
    return with_short_times(with_quoted_patterns(closed(with_required_tags(schema))))
