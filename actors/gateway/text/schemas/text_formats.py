"""JSON schemas whose formats are those that the library of grammars knows.

JSON Schema lets programs name formats of their own, and a reader who does not know one passes it over. pydantic and zod name
many. A name beside a `pattern`, an `enum` or a `const` adds nothing to them, and some formats allow any text. Others would
promise what no answer keeps, so they stay, and the library refuses them.
"""

from __future__ import annotations

from typing import Any

from actors.gateway.text.schemas.parts import rewritten

_KNOWN = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}  # to the library
_ANY_TEXT = {"binary", "password", "path", "file-path", "directory-path"}
_BASE64 = r"^(?:[0-9A-Za-z+/]{4})*(?:[0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?$"
# pydantic's base64url has a padding and zod's has none; whole groups of four are both
_PATTERNS = {"base64": _BASE64, "byte": _BASE64, "base64url": r"^(?:[0-9A-Za-z_-]{4})*$"}
_EXACT = {"pattern", "const", "enum"}


def with_known_formats(schema: Any) -> Any:
    """The schema without formats that say nothing more, and with patterns in place of those that a pattern can express."""
    return rewritten(schema, _known)


def _known(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("format")
    if not isinstance(name, str) or name in _KNOWN:
        return schema
    if _is_exact(schema) or name in _ANY_TEXT:
        del schema["format"]
    elif name in _PATTERNS:
        del schema["format"]
        schema["pattern"] = _PATTERNS[name]
    return schema


def _is_exact(schema: dict[str, Any]) -> bool:
    """True if the schema says by itself which texts match. zod writes several patterns as an `allOf`."""
    together = found if isinstance(found := schema.get("allOf"), list) else []
    return any(isinstance(one, dict) and _EXACT & set(one) for one in (schema, *together))
