"""What a client wants of the cache of answers: the header `Cache-Control` of its request (RFC 9111, section 5.2.1)."""

from __future__ import annotations

from enum import Enum


class CacheUse(Enum):
    """Whether a request may be answered from the cache, and whether its answer may be kept there."""

    FULL = "full"  # both
    REFRESH = "refresh"  # it is computed, and its answer replaces the kept one
    NONE = "none"  # neither


def cache_use_of(cache_control: str) -> CacheUse:
    """The use that a header `Cache-Control` asks for; "" without one. Directives that mean nothing here are ignored."""
    if not cache_control:
        return CacheUse.FULL
    directives = {part.strip().lower() for part in cache_control.split(",")}
    if "no-store" in directives:
        return CacheUse.NONE
    return CacheUse.REFRESH if directives & {"no-cache", "max-age=0"} else CacheUse.FULL
