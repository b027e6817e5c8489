"""The replica with the fewest tokens to do."""

from __future__ import annotations

from collections.abc import Sequence

from actors.gateway.dispatch.balancing.strategy import BalancingStrategy, Candidate, Choice, ChoiceReason

_NEARLY = 1.25  # a change of a load by less than an eighth is not reported, on either side


def least_loaded(candidates: Sequence[Candidate], n_tokens: int) -> Candidate:
    """The replica with the least load. Those that differ by little, as reports do, or by less than this work (`n_tokens`) count
    as equal: of them the one where the caller has the least, then the one that has got the fewest tokens of late. So a caller
    has its share of every replica, replicas share the work evenly while they are mostly idle too, and gateways that read the
    same report do not all choose the same one."""
    least = min(one.load_tokens for one in candidates)
    near = [one for one in candidates if one.load_tokens <= _NEARLY * least + n_tokens]
    return min(near, key=lambda one: (one.caller_tokens, one.recent_tokens, one.load_tokens, one.name))


class LeastTokens(BalancingStrategy):
    """Every sequence goes to the replica with the least load, whatever it has cached."""

    def choose(self, candidates: Sequence[Candidate], n_tokens: int) -> Choice:
        """As `BalancingStrategy.choose`."""
        return Choice(least_loaded(candidates, n_tokens).name, ChoiceReason.LOAD)
