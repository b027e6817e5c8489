"""Every promise holds with each eviction policy, while processes die."""

from __future__ import annotations

import pytest

from actors.pages.eviction.choice import EvictionName
from tests.support.depth import at_depth
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate


@pytest.mark.seeds
@pytest.mark.parametrize("name", EvictionName)
def test_every_promise_holds(name: EvictionName) -> None:
    for seed in range(at_depth(3)):
        outcome = simulate(seed, Scenario(n_deaths=3 + seed, n_device_faults=seed % 2, eviction=name))
        assert not outcome.problems, f"seed {seed}"
