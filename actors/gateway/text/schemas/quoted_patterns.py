"""JSON schemas whose patterns exclude quotation marks and backslashes as they say.

Where a class of a pattern excludes one of the two and allows control characters, as [^"] does, the library of grammars lets it
through in its escaped form. Without control characters it does not, so these are excluded there too.
"""

from __future__ import annotations

import re
from typing import Any

from actors.gateway.text.schemas.parts import rewritten

_CLASS = re.compile(r"\\.|\[(\^?)((?:\\.|[^\]\\])*)\]", re.DOTALL)  # an escape, which begins no class, or a class
_CONTROL = r"\x00-\x1f"


def with_quoted_patterns(schema: Any) -> Any:
    """The schema, with no control characters in the classes of its patterns that exclude a quotation mark or a backslash."""
    return rewritten(schema, _quoted)


def _quoted(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(pattern := schema.get("pattern"), str) and "[^" in pattern:
        schema["pattern"] = _CLASS.sub(_without_control, pattern)
    return schema


def _without_control(found: re.Match[str]) -> str:
    body = found[2] or ""
    if not found[1] or "[" in body or ('"' not in body and r"\\" not in body):  # a class in a class is not ECMAScript's
        return found[0]
    return f"[^{_CONTROL}{body}]"
