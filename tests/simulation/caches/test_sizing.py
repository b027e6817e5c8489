"""Every promise holds while the memory of pages and of the host tier follows the load, and processes die."""

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


@pytest.mark.seeds
@pytest.mark.parametrize("n_disk_places", [0, 60])
def test_every_promise_holds_while_the_host_tier_grows_and_shrinks(n_disk_places: int) -> None:
    reached = Counter[str]()
    for seed in seeds_of_block(0, 6 * DEPTH):
        scenario = Scenario(
            n_clients=24,
            n_deaths=seed,
            n_device_faults=seed % 2,
            tp=1 + seed % 2,
            n_host_places=(12, 50)[seed // 2 % 2],
            n_least_places=1 + seed % 3,
            n_least_pages=seed % 2,
            n_disk_places=n_disk_places,
            n_resets=seed % 3,
        )
        outcome = simulate(seed, scenario)
        assert not outcome.problems, f"seed {seed}"
        reached += outcome.reached
    assert reached["worker gets ReturnPlaces"] > 4
