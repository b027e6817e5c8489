"""How many operations a policy does in a second of processor time, without a ledger."""

from __future__ import annotations

import random
import time

from actors.pages.chain_root import ROOT
from actors.pages.eviction.policy import EvictionPolicy

_CHAIN = 32  # pages of a sequence
_ROUNDS = 1000
_HASH_BITS = 64


def operations_per_s(policy: EvictionPolicy, n_pages: int) -> float:
    """Operations of a policy in a second of processor time, on a full cache. One sequence after the other overwrites 32 pages
    with its own chain and then uses the chain of the sequence before it. An operation is one page evicted, learnt (where the
    policy reads contents), added, removed or used."""
    chance = random.Random(0)
    for first in range(0, n_pages - _CHAIN + 1, _CHAIN):
        _compute(policy, list(range(first, first + _CHAIN)), chance)
    n_operations, before, cpu_s = 0, list[int](), 0.0
    for _ in range(_ROUNDS):
        began_s = time.process_time()
        pages = [_overwritten(policy) for _ in range(_CHAIN)]
        cpu_s += time.process_time() - began_s
        contents = _chain(chance)
        began_s = time.process_time()
        if policy.reads_contents:
            for page, (content_hash, parent) in zip(pages, contents, strict=True):
                policy.learn(page, content_hash, parent)
        policy.add(pages[::-1])
        n_operations += _CHAIN * (3 if policy.reads_contents else 2)
        if before and all(page in policy for page in before):
            policy.remove(before)
            policy.use(before)
            policy.add(before[::-1])
            n_operations += _CHAIN * 3
        cpu_s += time.process_time() - began_s
        before = pages
    return n_operations / cpu_s


def _overwritten(policy: EvictionPolicy) -> int:
    page = policy.evict()
    policy.drop(page)
    return page


def _compute(policy: EvictionPolicy, pages: list[int], chance: random.Random) -> None:
    for page, (content_hash, parent) in zip(pages, _chain(chance), strict=True):
        policy.learn(page, content_hash, parent)
    policy.add(pages[::-1])


def _chain(chance: random.Random) -> list[tuple[int, int]]:
    """(hash, parent's hash) of the pages of a new sequence."""
    hashes = [ROOT, *(chance.getrandbits(_HASH_BITS) for _ in range(_CHAIN))]
    return list(zip(hashes[1:], hashes[:-1], strict=True))
