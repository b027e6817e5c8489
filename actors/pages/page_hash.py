"""Hashes of page contents: a chained 64-bit hash of a full page of tokens and of all tokens before it.

Gateways, schedulers and the directory compute the same hash, in every process and after every restart: BLAKE2b (RFC 7693) of
the parent's hash and the page's tokens as little-endian int32. A scheduler compares the tokens too before it reuses a
page, so a collision costs a cache miss and never a wrong token. All hashes are odd (`chain_root.py` says why).
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from actors.pages.chain_root import ROOT
from messages.steps import PAGE_TOKENS

HASH_BYTES = 8
_PAGE_BYTES = PAGE_TOKENS * 4


def page_hash(parent: int, tokens: bytes) -> int:
    """Hash of one full page: `tokens` are its PAGE_TOKENS ids as little-endian int32 bytes."""
    digest = blake2b(parent.to_bytes(HASH_BYTES, "little") + tokens, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "little") | 1


def add_hashes(hashes: list[int], root: int, data: bytes) -> None:
    """Add the hashes of the pages of a sequence that follow those in `hashes`. As `page_hash` for each, in less time.

    Args: root: of the sequence. data: its tokens from the first page on, whole pages, as little-endian int32 bytes.
    """
    first, from_bytes = len(hashes), int.from_bytes
    parent = (hashes[-1] if hashes else root).to_bytes(HASH_BYTES, "little")
    for start in range(first * _PAGE_BYTES, len(data), _PAGE_BYTES):
        digest = blake2b(parent + data[start : start + _PAGE_BYTES], digest_size=HASH_BYTES).digest()
        hashes.append(content_hash := from_bytes(digest, "little") | 1)
        parent = content_hash.to_bytes(HASH_BYTES, "little")


def depths(hashes: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """How many pages each page's chain has, from a first page to itself; 0 where the chain does not begin at a first page.

    Args: hashes, parents: of different pages, [n] uint64 each.
    Returns: [n] integers. Takes O(n log n): each pass doubles how far up a page looks (pointer jumping).
    """
    n = len(hashes)
    order, asked = np.argsort(hashes), np.argsort(parents)
    found = np.empty_like(order)  # looked up in ascending order, which is several times as fast as in any other one
    found[asked] = order[np.minimum(np.searchsorted(hashes[order], parents[asked]), n - 1)] if n else order
    # entries n and n + 1 stand for what is above a first page, and for what is not there
    above = np.append(np.where(hashes[found] == parents, found, n + 1), [n, n + 1])
    above[:n][parents % 2 == 0] = n  # the parents of first pages are roots
    depth = np.append(np.ones(n, np.int64), [0, 0])
    for _ in range(n.bit_length()):
        if (above[:n] >= n).all():
            break
        depth += depth[above]
        above = above[above]
    return np.where(above[:n] == n, depth[:n], 0)  # a circle of damaged records never comes to an end


def whole_chains(pages: np.ndarray, hashes: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, ...]:
    """The pages whose chains begin at a first page, one of each content; a page comes before those that it continues.

    Args: pages, hashes, parents: [n] each, integers and uint64.
    Returns: (pages, hashes, parents) of these.
    """
    order = np.argsort(hashes)
    order = order[np.diff(hashes[order], prepend=np.uint64(0)) != 0]
    pages, hashes, parents = pages[order], hashes[order], parents[order]
    depth = depths(hashes, parents)
    order = np.lexsort((pages, -depth))[: np.count_nonzero(depth)]
    return pages[order], hashes[order], parents[order]


def page_hashes(tokens: np.ndarray, root: int = ROOT) -> np.ndarray:
    """Hashes of every full page of a sequence.

    Args: tokens: [n] integers. root: of the sequence.
    Returns: [n // PAGE_TOKENS] uint64.
    """
    data, hashes = np.ascontiguousarray(tokens, dtype="<i4").tobytes(), list[int]()
    add_hashes(hashes, root, data[: len(data) // _PAGE_BYTES * _PAGE_BYTES])
    return np.array(hashes, dtype="<u8")
