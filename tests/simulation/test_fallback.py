"""A fallback model in simulated servers: each request gets the whole answer of one model, whoever dies or pauses meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.gateway.dispatch import dispatcher
from tests.support.simulation.scenario import Outcome, Scenario
from tests.support.simulation.world import simulate

HARMED = Scenario(
    n_clients=9, n_deaths=8, n_pauses=1, n_aims=2, n_cuts=1, n_supervisor_deaths=1, n_rolls=1, n_replicas=1, has_fallback=True
)


def _n_fallen_back(outcome: Outcome) -> int:
    return sum(bool(line.get("is_fallback")) for line in outcome.log)


@pytest.mark.parametrize("first", [0, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.seeds
def test_each_request_gets_the_answer_of_one_model(first: int) -> None:
    n_fallen_back = 0
    for seed in range(first, first + (100 if first else 5)):
        outcome = simulate(seed, HARMED)
        assert not outcome.problems, seed
        n_fallen_back += _n_fallen_back(outcome)
    assert n_fallen_back, "the fallback model has answered"


def test_a_request_that_goes_to_the_other_model_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "of_model", lambda schedulers, model: list(schedulers))
    mixed = replace(HARMED, n_deaths=0, n_pauses=0, n_aims=0, n_supervisor_deaths=0, n_rolls=0)
    assert any(any("wrong" in problem for problem in simulate(seed, mixed).problems) for seed in range(3))
