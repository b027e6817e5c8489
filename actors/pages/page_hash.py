"""Hashes of page contents: a chained 64-bit hash of a full page of tokens and of all tokens before it.

Gateways, schedulers and the directory compute the same hash, in every process and after every restart: BLAKE2b (RFC 7693) of
the parent's hash and the page's tokens as little-endian int32. A scheduler compares the tokens too before it reuses a
page, so a collision costs a cache miss and never a wrong token.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from messages.steps import PAGE_TOKENS

ROOT = 0  # the parent of a first page


def page_hash(parent: int, tokens: bytes) -> int:
    """Hash of one full page: `tokens` are its PAGE_TOKENS ids as little-endian int32 bytes."""
    return int.from_bytes(blake2b(parent.to_bytes(8, "little") + tokens, digest_size=8).digest(), "little")


def page_hashes(tokens: np.ndarray) -> np.ndarray:
    """Hashes of every full page of a sequence.

    Args: tokens: [n] integers.
    Returns: [n // PAGE_TOKENS] uint64.
    """
    data = np.ascontiguousarray(tokens, dtype="<i4").tobytes()
    size_bytes = PAGE_TOKENS * 4
    hashes, parent = [], ROOT
    for offset in range(0, len(data) - size_bytes + 1, size_bytes):
        parent = page_hash(parent, data[offset : offset + size_bytes])
        hashes.append(parent)
    return np.array(hashes, dtype="<u8")
