"""Every promise holds while sequences run ahead of the loads that bring their pages, and loads fail, are late, or lose their
client, their scheduler or their gang."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.depth import at_depth
from tests.support.simulation.mutations import noticed
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Outcome, Scenario
from tests.support.simulation.world import simulate

_N_SEEDS = 8
_SAD_FATES = ("takes back", "gives up", "forgets", "has lost")  # of runs ahead


def _run(seed: int) -> Outcome:
    is_calm = seed % 2 == 0
    scenario = Scenario(
        n_clients=26,
        n_deaths=0 if is_calm else 1 + seed % 4,
        n_resets=seed % 3,
        loss=Loss() if is_calm else Loss(0.02, 0.02, 0.02),
        tp=1 + seed % 4 // 3,
        n_replicas=1,
        n_host_places=(20, 100)[seed // 2 % 2],
        copies_beside=True,
        copy_faults=(0.05, 0.2)[seed // 4 % 2],
        are_returning=True,
    )
    return simulate(seed, scenario)


@pytest.mark.slow
@pytest.mark.seeds
def test_every_promise_holds() -> None:
    reached = Counter[str]()
    for seed in range(at_depth(_N_SEEDS)):
        outcome = _run(seed)
        assert not outcome.problems, f"seed {seed}"
        reached += outcome.reached
    assert reached["scheduler proves a run ahead"]
    assert any(reached[f"scheduler {fate} a run ahead"] for fate in _SAD_FATES)


@pytest.mark.slow
@pytest.mark.seeds
@pytest.mark.parametrize(
    "guard", ["results of a run ahead of its load count at once", "a run ahead goes on after its load has failed"]
)
def test_a_guard_that_is_taken_away_is_noticed(guard: str) -> None:
    assert any(noticed(guard, range(seed, seed + 1), _run) for seed in range(16, 16 + 2 * _N_SEEDS, 2))
