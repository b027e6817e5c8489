"""Every promise holds with a host tier, while processes die and messages are lost."""

from __future__ import annotations

from collections import Counter

import pytest

from gpu_workers.settings import HostCacheDtype
from tests.support.depth import at_depth
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate

_DTYPES: tuple[HostCacheDtype, ...] = ("same", "int4", "adaptive")


@pytest.mark.seeds
@pytest.mark.parametrize("tp", [1, 2])
def test_every_promise_holds(tp: int) -> None:
    reached = Counter[str]()
    for seed in range(at_depth(6)):
        loss = Loss(0.02, 0.02, 0.02) if seed % 2 else Loss()
        scenario = Scenario(
            n_clients=24,
            n_deaths=seed,
            n_device_faults=seed % 2,
            loss=loss,
            tp=tp,
            n_host_places=(5, 50, 500)[seed % 3],
            host_cache_dtype=_DTYPES[(seed // 3 + tp) % 3],
        )
        outcome = simulate(seed, scenario)
        assert not outcome.problems, f"seed {seed}"
        reached += outcome.reached
    assert reached["worker gets MovePages"] > 0
    assert reached["scheduler gets PagesMoved"] > 0
