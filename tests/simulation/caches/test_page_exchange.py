"""Every promise holds while pages move between two replicas, processes die and messages are lost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.depth import at_depth
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate

_KINDS = ("PagesWanted", "PagesLent", "ExchangePages", "PagesExchanged")


@pytest.mark.seeds
@pytest.mark.parametrize("tp", [1, 2])
def test_every_promise_holds(tp: int) -> None:
    reached = Counter[str]()
    for seed in range(at_depth(6)):
        scenario = Scenario(
            n_clients=16,
            n_deaths=seed,
            n_device_faults=seed % 2,
            n_resets=seed % 3,
            loss=Loss(0.02, 0.02, 0.02) if seed % 2 else Loss(),
            tp=tp,
            n_host_places=(0, 40)[seed // 2 % 2],
            n_exchange_places=(5, 20, 100)[seed % 3],
        )
        outcome = simulate(seed, scenario)
        assert not outcome.problems, f"seed {seed}"
        reached += outcome.reached
    assert all(sum(n for edge, n in reached.items() if edge.endswith(f"gets {kind}")) > 0 for kind in _KINDS)
