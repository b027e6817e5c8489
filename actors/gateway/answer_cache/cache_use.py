"""What a client wants of the cache of answers: the header `Cache-Control` of its request (RFC 9111, section 5.2.1)."""

from __future__ import annotations

import math
import re
from typing import ClassVar

import msgspec

_MAX_AGE = re.compile(r"max-age=(\d{1,9})")


class CacheUse(msgspec.Struct, frozen=True):
    """Whether a request may be answered from the cache, by answers of which age at most, and whether its answer may be kept."""

    may_find: bool = True
    may_keep: bool = True
    max_age_s: float = math.inf

    FULL: ClassVar[CacheUse]  # both, of any age
    REFRESH: ClassVar[CacheUse]  # it is computed, and its answer replaces the kept one
    NONE: ClassVar[CacheUse]  # neither

    @property
    def is_asked(self) -> bool:
        """True if the client asks for a kept answer, whatever its request is."""
        return self.may_find and math.isfinite(self.max_age_s)


CacheUse.FULL = CacheUse()
CacheUse.REFRESH = CacheUse(may_find=False)
CacheUse.NONE = CacheUse(may_find=False, may_keep=False)


def cache_use_of(cache_control: str) -> CacheUse:
    """The use that a header `Cache-Control` asks for; "" without one. Directives that mean nothing here are ignored."""
    if not cache_control:
        return CacheUse.FULL
    directives = {part.strip().lower() for part in cache_control.split(",")}
    if "no-store" in directives:
        return CacheUse.NONE
    ages_s = [int(found[1]) for one in directives if (found := _MAX_AGE.fullmatch(one))]
    if "no-cache" in directives or 0 in ages_s:
        return CacheUse.REFRESH
    return CacheUse(max_age_s=min(ages_s)) if ages_s else CacheUse.FULL
