"""An operator lets caches forget while processes die and messages are lost: every answer is right, and every reset is answered
by the schedulers that live."""

from __future__ import annotations

import pytest

from actors.pages.eviction.choice import EvictionName
from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.faults.resets import Resets
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate

_N_SEEDS = 12
_POLICIES = list(EvictionName)


def _scenario(seed: int) -> Scenario:
    return Scenario(
        n_clients=8,
        n_deaths=seed % 5,
        n_resets=6,
        n_device_faults=seed % 2,
        loss=Loss(*(0.02 * (seed % 2),) * 3),
        eviction=_POLICIES[seed % len(_POLICIES)],
    )


@pytest.mark.seeds
@pytest.mark.parametrize("block", range((DEPTH + 1) // 2))
def test_every_promise_holds(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Resets] = []

    def make(resets: Resets, *arguments: object) -> None:
        made.append(resets)
        honest(resets, *arguments)  # type: ignore[arg-type]

    honest = Resets.__init__
    monkeypatch.setattr(Resets, "__init__", make)
    seeds = seeds_of_block(block, _N_SEEDS)
    for seed in seeds:
        assert not simulate(seed, _scenario(seed)).problems, f"seed {seed}"
    done = [n_pages for resets in made for n_pages in resets.done]
    assert len(done) > 2 * len(seeds), "most resets are answered"
    assert sum(done) > 2 * len(seeds), "and pages were there to be forgotten"
