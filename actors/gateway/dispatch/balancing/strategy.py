"""What a balancing strategy decides, and from what. A strategy is a class that implements `BalancingStrategy`, and a line in
`choice.py`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A replica that may get a sequence, by the name of its scheduler. Tokens at a slow replica count as often as it takes
    longer for them than the quickest one."""

    name: str
    load_tokens: int  # that wait or run there, as its scheduler says, with what was sent since
    recent_tokens: float  # that this gateway has given it of late; older ones count less
    pages: int  # leading ones of the prompt that it has cached, as far as the cache directory knows
    caller_tokens: float = 0.0  # that the same caller has there; 0 where callers are not told apart, or nobody waits


class ChoiceReason(StrEnum):
    """Why a replica was chosen."""

    ONLY = "only"  # there is no other one
    PREFIX = "prefix"  # it has most of the prompt
    LOAD = "load"  # it has the least to do
    TURN = "turn"  # round robin
    PROBE = "probe"  # its breaker lets one sequence through
    SPREAD = "spread"  # others have more of the prompt, and too much to do


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The scheduler that gets a sequence, and why."""

    name: str
    why: ChoiceReason


class BalancingStrategy(Protocol):
    """Chooses one of several replicas. It may remember what it has chosen; it must not read a clock or draw at random, so that
    a run can be replayed."""

    def choose(self, candidates: Sequence[Candidate], n_tokens: int) -> Choice:
        """The replica for sequences that bring `n_tokens` tokens of work. `candidates`: two or more, sorted by name."""
        ...
