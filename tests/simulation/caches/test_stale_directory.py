"""A cache directory that is behind costs time, never a token: it names pages that were overwritten or never were, schedulers
that have died, and a replica that there is not. Only the ledger of a scheduler decides what is reused."""

from __future__ import annotations

import random

import pytest

from actors.cache_directory import directory_actor
from actors.cache_directory.prefix_index import PrefixIndex
from tests.support.depth import at_depth
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate


class _StaleIndex(PrefixIndex):
    """Promises a part of each prompt at every scheduler of which it has ever heard. `n_wrong`: answers that are not true."""

    chance = random.Random(0)
    n_wrong = 0

    def __init__(self, max_hashes: int) -> None:
        super().__init__(max_hashes)
        self._ever = {"scheduler/7"}

    def replace(self, scheduler: str, number: int, hashes: list[int]) -> None:
        self._ever.add(scheduler)
        super().replace(scheduler, number, hashes)

    def match(self, hashes: list[int]) -> dict[str, int]:
        found = {name: self.chance.randint(1, len(hashes)) for name in sorted(self._ever)}
        _StaleIndex.n_wrong += found != super().match(hashes)
        return found


@pytest.mark.seeds
@pytest.mark.parametrize("n_least_pages", [0, 4])
def test_every_promise_holds_with_a_directory_that_is_behind(monkeypatch: pytest.MonkeyPatch, n_least_pages: int) -> None:
    monkeypatch.setattr(directory_actor, "PrefixIndex", _StaleIndex)
    _StaleIndex.n_wrong = 0
    for seed in range(at_depth(4)):
        scenario = Scenario(n_clients=14, n_deaths=6, n_replicas=2, n_least_pages=n_least_pages, asks_alike=seed % 2 > 0)
        outcome = simulate(seed, scenario)
        assert not outcome.problems, f"seed {seed}"
    assert _StaleIndex.n_wrong > 10
