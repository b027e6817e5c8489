"""The balancing strategies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.gateway.dispatch.balancing.least_tokens import LeastTokens
from actors.gateway.dispatch.balancing.prefix import PrefixFirst
from actors.gateway.dispatch.balancing.round_robin import RoundRobin
from actors.gateway.dispatch.balancing.strategy import BalancingStrategy
from actors.gateway.settings import BalancingName

STRATEGIES: Mapping[BalancingName, Callable[[], BalancingStrategy]] = {
    "prefix": PrefixFirst,
    "least_tokens": LeastTokens,
    "round_robin": RoundRobin,
}


def make_strategy(name: BalancingName) -> BalancingStrategy:
    """A new strategy, for one gateway."""
    return STRATEGIES[name]()
