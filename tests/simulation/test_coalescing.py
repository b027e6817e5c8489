"""Clients that ask the same at the same time get the oracle's tokens, whoever of them leaves and whatever dies."""

from __future__ import annotations

import pytest

from actors.gateway.lifecycle.coalescing import Coalescing
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import Request
from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.mutations import noticed
from tests.support.simulation.scenario import Outcome, Scenario
from tests.support.simulation.world import simulate

_N_SEEDS = 16


def _scenario(seed: int) -> Scenario:
    return Scenario(n_clients=8 + seed % 2, n_deaths=seed % 4, n_aims=seed % 3, n_disk_failures=seed % 2, asks_alike=True)


@pytest.mark.seeds
@pytest.mark.parametrize("block", range((DEPTH + 1) // 2))
def test_every_promise_holds(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    joined, left = list[int](), list[int]()

    def join(groups: Coalescing, request: Request, leader: Request) -> StepRows:
        joined.append(sum(len(sequence.ids) for sequence in leader.sequences))
        return honest_join(groups, request, leader)

    def leave(groups: Coalescing, request: Request, *, is_harmful: bool = False) -> list[Request]:
        to_submit = honest_leave(groups, request, is_harmful=is_harmful)
        left.extend(len(one.sequences[0].ids) for one in to_submit)
        return to_submit

    honest_join, honest_leave = Coalescing.join, Coalescing.leave
    monkeypatch.setattr(Coalescing, "join", join)
    monkeypatch.setattr(Coalescing, "leave", leave)
    for seed in seeds_of_block(block, _N_SEEDS):
        assert not simulate(seed, _scenario(seed)).problems, f"seed {seed}"
    assert any(joined), "some request has joined one that had tokens"
    if block == 0:  # another block may have no leader that leaves
        assert any(left), "some request went on in place of one that had left"


@pytest.mark.seeds
def test_a_guard_that_is_missing_is_noticed() -> None:
    def run(seed: int) -> Outcome:
        return simulate(seed, _scenario(seed))

    guard = "requests that followed another one are not submitted when it leaves"
    assert any(noticed(guard, range(seed, seed + 1), run) for seed in range(_N_SEEDS))
