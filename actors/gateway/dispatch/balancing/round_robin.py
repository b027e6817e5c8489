"""The replicas in turn."""

from __future__ import annotations

from collections.abc import Sequence

from actors.gateway.dispatch.balancing.strategy import BalancingStrategy, Candidate, Choice, ChoiceReason


class RoundRobin(BalancingStrategy):
    """Every sequence goes to the replica after the last one, in the order of the names."""

    def __init__(self) -> None:
        self._last = ""

    def choose(self, candidates: Sequence[Candidate], n_tokens: int) -> Choice:
        """As `BalancingStrategy.choose`."""
        names = sorted(one.name for one in candidates)
        self._last = next((name for name in names if name > self._last), names[0])
        return Choice(self._last, ChoiceReason.TURN)
