"""Urgent steps are often computed before plans that were sent earlier, while processes die, pause and lose messages: every
answer is right."""

from __future__ import annotations

import pytest

from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate

_N_SEEDS = 10


def _scenario(seed: int) -> Scenario:
    return Scenario(
        n_clients=14,
        n_deaths=seed % 4,
        n_pauses=seed % 2,
        n_aims=seed % 3,
        n_replicas=1,
        n_device_faults=seed % 2,
        loss=Loss(*(0.02 * (seed % 2),) * 3),
        vocabulary=4 if seed % 3 == 0 else 32_768,
        n_host_places=40 if seed % 4 == 3 else 0,
    )


@pytest.mark.seeds
@pytest.mark.slow
@pytest.mark.parametrize("block", range((DEPTH + 1) // 2))
def test_every_promise_holds(block: int) -> None:
    n_urgent = 0
    for seed in seeds_of_block(block, _N_SEEDS):
        outcome = simulate(seed, _scenario(seed))
        assert not outcome.problems, f"seed {seed}"
        n_urgent += outcome.reached["worker runs an urgent step"]
    assert n_urgent > 3
