"""What can still be said of a public message that could not be read: its request and the field at fault. Pure."""

from __future__ import annotations

import msgspec


def field_in(text: str) -> str:
    """The field that a decoder's words name, or ""."""
    for opening, closing in (("`$.", "`"), ("field `", "`")):
        start = text.find(opening)
        if start >= 0:
            start += len(opening)
            return text[start : text.find(closing, start)]
    head = text.removeprefix("message: ").partition(":")[0]
    return head if head.isidentifier() else ""


def request_in(frames: list[bytes]) -> str:
    """The request id in a message that could not be read as a whole, or ""."""
    try:
        fields = msgspec.msgpack.decode(frames[1]) if len(frames) > 1 else None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return ""
    value = fields.get("request", fields.get("call")) if isinstance(fields, dict) else None
    return value[:256] if isinstance(value, str) else ""
