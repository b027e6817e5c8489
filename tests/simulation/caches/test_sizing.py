"""Every promise holds while the memory of pages follows the load, and processes die."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate


@pytest.mark.seeds
@pytest.mark.parametrize("n_host_places", [0, 40])
def test_every_promise_holds(n_host_places: int) -> None:
    reached = Counter[str]()
    seeds = seeds_of_block(0, 6 * DEPTH)
    for seed in seeds:
        scenario = Scenario(n_clients=12, n_deaths=seed, tp=1 + seed % 2, n_host_places=n_host_places, n_least_pages=1 + seed)
        outcome = simulate(seed, scenario)
        assert not outcome.problems, f"seed {seed}"
        reached += outcome.reached
    assert reached["worker gets ReturnPages"] > min(10, 2 * len(seeds))
