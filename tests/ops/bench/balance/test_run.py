"""The bench of balancing in virtual time: every strategy answers everything, and work is even where it can be."""

from __future__ import annotations

from typing import get_args

import pytest

from actors.gateway.settings import BalancingName
from ops.bench.balance.gateway_model import FEWEST_SEQUENCES
from ops.bench.balance.run import BalanceCase, BalanceLoad, run
from ops.bench.commands.balance import figures_of


@pytest.mark.parametrize("balancing", [*get_args(BalancingName), FEWEST_SEQUENCES])
def test_every_strategy_answers_what_comes(balancing: str) -> None:
    result = run(BalanceCase(balancing, BalanceLoad.UNIFORM, rate=5.0, n_minutes=2))
    assert len(result.first_token_s) > 500
    assert (result.n_given_up, result.n_openings, result.n_moved) == (0, 0, 0)


@pytest.mark.parametrize(("load", "most"), [(BalanceLoad.UNIFORM, 0.05), (BalanceLoad.ZIPF, 0.15)])
def test_replicas_compute_equal_shares(load: BalanceLoad, most: float) -> None:
    assert figures_of(run(BalanceCase("prefix", load, rate=8.0, n_minutes=2)))["worst_imbalance"] < most


@pytest.mark.slow
def test_queued_work_leaves_a_replica_that_becomes_slow() -> None:
    result = run(BalanceCase("round_robin", BalanceLoad.SLOW, rate=30.0, n_replicas=2, n_minutes=2))
    assert result.n_moved > 0
    assert result.n_given_up == 0
