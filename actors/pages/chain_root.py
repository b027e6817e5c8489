"""Where the chains of page hashes begin. Apart from `page_hash`, because settings name policies, and a start that is refused
has no time to import numpy.

The parent of a first page is a *root*. Pages are shared only between sequences of the same root, because everything that finds
a page compares its parent. Roots are even numbers and hashes of pages odd ones, so a page shows by itself that it is a first
one, also after the death of the scheduler that knew its sequence.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

ROOT = 0  # of requests that share their pages with all others
_ROOT_BYTES = 8


@lru_cache(maxsize=4096)
def root_of(scope: bytes, salt: str) -> int:
    """The root of a request. scope: who may share its pages, b"" for all. salt: of the client; it makes the circle smaller."""
    if not scope and not salt:
        return ROOT
    named = len(scope).to_bytes(1, "little") + scope + salt.encode()
    return (int.from_bytes(blake2b(named, digest_size=_ROOT_BYTES).digest(), "little") & ~1) or 2
