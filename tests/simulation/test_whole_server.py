"""The whole server stops, is drained or dies at once, and is started again; all its processes pause; bits of journals flip."""

from __future__ import annotations

import pytest

from tests.support.depth import DEPTH
from tests.support.simulation.mutations import noticed
from tests.support.simulation.scenario import Outage, Outcome, Scenario
from tests.support.simulation.world import simulate

_PAUSE = Scenario(n_deaths=0, n_common_pauses=1, longest_pause_s=30.0)
_FLIPS = Scenario(n_deaths=0, n_flips=3)
_WITHOUT = {  # guards of the product, and runs in which each must be missed, within so many seeds
    "pages are not copied": (Scenario(), 4),
    "incarnations begin at 1 in each server": (Scenario(n_deaths=0, outages=(Outage.DEATH,)), 4),
    "a pause of the supervisor counts as silence of the others": (_PAUSE, 4),
    "a command dies with its supervisor": (Scenario(n_deaths=0, n_supervisor_deaths=3, outages=(Outage.DRAIN,)), 24),
}


@pytest.mark.seeds
@pytest.mark.parametrize("outage", Outage)
def test_every_answer_goes_on_after_the_next_start(outage: Outage) -> None:
    for seed in range(DEPTH):
        outcome = simulate(seed, Scenario(n_deaths=seed % 3, outages=(outage,)))
        assert not outcome.problems, f"seed {seed}"
        starts = [line for line in outcome.log if line["event"] == "serving"]
        assert len(starts) == 2


@pytest.mark.seeds
@pytest.mark.parametrize("scenario", [_PAUSE, _FLIPS], ids=["a pause of all", "flipped bits"])
def test_every_promise_holds(scenario: Scenario) -> None:
    for seed in range(DEPTH):
        assert not simulate(seed, scenario).problems, f"seed {seed}"


@pytest.mark.seeds
@pytest.mark.parametrize("guard", _WITHOUT)
def test_a_guard_that_is_missing_is_noticed(guard: str) -> None:
    assert _is_noticed(guard, *_WITHOUT[guard])


@pytest.mark.long
def test_a_checksum_that_is_missing_is_noticed() -> None:
    assert _is_noticed("a frame of the journal needs no checksum", _FLIPS, 160)


def _is_noticed(guard: str, scenario: Scenario, n_seeds: int) -> bool:
    def run(seed: int) -> Outcome:
        return simulate(seed, scenario)

    return any(noticed(guard, range(seed, seed + 1), run) for seed in range(n_seeds))
