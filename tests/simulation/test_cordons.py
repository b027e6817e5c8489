"""Replicas are taken out of use and drained while processes die, pause and lose messages: every answer is right, and a replica
that stays cordoned becomes idle."""

from __future__ import annotations

import pytest

from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.faults.cordons import CordonCommands
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate

_N_SEEDS = 16


def _scenario(seed: int) -> Scenario:
    return Scenario(
        n_clients=10,
        n_deaths=seed % 4,
        n_pauses=seed % 2,
        n_cordons=6,
        n_replicas=2,
        n_supervisor_deaths=seed % 3 == 0,
        n_device_faults=seed % 2,
        loss=Loss(*(0.02 * (seed % 2),) * 3),
    )


@pytest.mark.seeds
@pytest.mark.parametrize("block", range((DEPTH + 1) // 2))
def test_every_promise_holds(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[CordonCommands] = []
    honest = CordonCommands.__init__

    def make(commands: CordonCommands, *arguments: object) -> None:
        made.append(commands)
        honest(commands, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CordonCommands, "__init__", make)
    n_recalled = 0
    seeds = seeds_of_block(block, _N_SEEDS)
    for seed in seeds:
        outcome = simulate(seed, _scenario(seed))
        assert not outcome.problems, f"seed {seed}"
        n_recalled += outcome.reached["scheduler gets Recall"]
    assert sum(commands.n_done for commands in made) > 2 * len(seeds), "most commands are carried out"
    assert n_recalled > 0
