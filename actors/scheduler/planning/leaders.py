"""Which prompts a plan goes on with, so that waiting ones that begin alike can follow them. Pure.

A waiting sequence follows the *leader* that computes the first page that it lacks. It waits until the leader has computed all
that both have in common, instead of computing the same beside it. It follows only a sequence that has a row in the plan that is
being made: so the leader goes on, and comes before it in the order.
"""

from __future__ import annotations

import numpy as np

from actors.scheduler.sequences.sequence import Sequence
from messages.steps import PAGE_TOKENS


class Leaders:
    """The sequences with rows of prompts in one plan."""

    def __init__(self) -> None:
        self._by_hash: dict[int, Sequence] = {}  # by the content of the page in which the row begins
        self._start_of: dict[int, int] = {}  # by number: the first position of the row

    def add(self, sequence: Sequence, start: int) -> None:
        """A sequence has a row of its prompt that begins at this position."""
        self._by_hash[sequence.known_hash(start // PAGE_TOKENS)] = sequence
        self._start_of[sequence.number] = start

    def follow(self, sequence: Sequence, content_hash: int) -> bool:
        """True if somebody computes the page with this content, which the sequence lacks: it follows from now on."""
        leader = self._by_hash.get(content_hash)
        if leader is None:
            return False
        n_common, n_wanted = _n_common_tokens(sequence, leader), sequence.known - 1
        sequence.leader = leader, n_wanted if n_common >= n_wanted else n_common // PAGE_TOKENS * PAGE_TOKENS
        return True

    def still_follows(self, sequence: Sequence) -> bool:
        """True if the leader of the sequence goes on in this plan with what both have in common."""
        if sequence.leader is None:
            return False
        leader, n_tokens = sequence.leader
        return self._start_of.get(leader.number, n_tokens) < n_tokens


def _n_common_tokens(one: Sequence, other: Sequence) -> int:
    """The number of leading known tokens that are equal."""
    n_tokens = min(one.known, other.known)
    differ = np.flatnonzero(one.tokens(0, n_tokens) != other.tokens(0, n_tokens))
    return int(differ[0]) if len(differ) else n_tokens
