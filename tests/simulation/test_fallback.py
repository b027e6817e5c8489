"""A fallback model in simulated servers: each request gets the whole answer of one model, whoever dies or pauses meanwhile."""

from __future__ import annotations

import itertools

import pytest

from actors.gateway.dispatch.dispatcher import Dispatcher
from messages.ids import model_of
from tests.support.simulation.scenario import Outcome, Scenario
from tests.support.simulation.world import simulate

HARMED = Scenario(
    n_clients=9, n_deaths=8, n_pauses=1, n_aims=2, n_cuts=1, n_supervisor_deaths=1, n_rolls=1, n_replicas=1, has_fallback=True
)


def _n_fallen_back(outcome: Outcome) -> int:
    return sum(bool(line.get("is_fallback")) for line in outcome.log)


@pytest.mark.parametrize(("first", "n_seeds"), [(5, 5), pytest.param(10, 100, marks=pytest.mark.long)])
@pytest.mark.seeds
def test_each_request_gets_the_answer_of_one_model(first: int, n_seeds: int) -> None:
    n_fallen_back = 0
    for seed in range(first, first + n_seeds):
        outcome = simulate(seed, HARMED)
        assert not outcome.problems, seed
        n_fallen_back += _n_fallen_back(outcome)
    assert n_fallen_back, "the fallback model has answered"


def test_a_request_that_goes_to_the_other_model_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each choice is one of the other model than the last one, so that attempts after a death go to the other model."""
    turns = itertools.cycle((0, 1))

    def of_other_model(one: Dispatcher, model: int) -> list[str]:
        wanted, living = next(turns), one._post.living("scheduler")
        return one.failover.replicas.candidates([name for name in living if model_of(name) == wanted] or living)

    monkeypatch.setattr(Dispatcher, "_candidates", of_other_model)
    assert any(any("wrong" in problem for problem in simulate(seed, HARMED).problems) for seed in range(20))
