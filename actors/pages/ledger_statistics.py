"""What a page ledger counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.pages.eviction.policy import PolicyFigures


@dataclass(frozen=True)
class LedgerStatistics:
    """Pages by state, and counts of reuse since the ledger was made."""

    pages: int
    free: int
    cached: int
    held: int
    hits: int  # pages that entered a slot without being computed; a failed admission does not count
    evictions: int
    by_policy: Mapping[str, PolicyFigures]  # by the name of the policy
    returned: int = 0  # pages whose memory is with the system, until they are needed
    oldest_s: float = 0.0  # age of the oldest content; that of an adopted one counts from then on
