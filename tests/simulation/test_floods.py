"""Clients that ask for more than the bounds let in: what waits stays bounded, and every answer comes, whatever dies."""

from __future__ import annotations

import pytest

from actors.gateway.lifecycle.admission_gate import AdmissionGate
from actors.gateway.overload.overload_metrics import OverloadMetrics
from actors.gateway.requests.request import Request
from actors.scheduler.load.degradation import Degradation
from messages.generation.replica_load import DegradationLevel
from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.scenario import Scenario, policy_for
from tests.support.simulation.world import simulate

_N_SEEDS = 8


def _scenario(seed: int) -> Scenario:
    return Scenario(
        n_clients=40, n_deaths=seed % 5, n_aims=seed % 3, n_clock_jumps=seed % 2, n_pauses=seed % 2, is_flooded=True,
        policy=policy_for(seed),
    )  # fmt: skip


@pytest.mark.seeds
@pytest.mark.parametrize("block", range((DEPTH + 1) // 2))
def test_every_promise_holds_and_queues_are_bounded(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refused, levels = set[str](), set[DegradationLevel]()
    honest_accepted, honest_refused, honest_update = AdmissionGate.accepted, OverloadMetrics.refused, Degradation.update

    def accepted(gate: AdmissionGate, request: Request) -> None:
        shares = gate.queued.shares
        n_before, is_new = shares.n_held, not request.is_recorded
        honest_accepted(gate, request)
        assert not is_new or not n_before or shares.n_held <= shares.limit
        assert not is_new or gate.n_active <= 12

    def note(metrics: OverloadMetrics, why: str) -> None:
        refused.add(why)
        honest_refused(metrics, why)

    def update(degradation: Degradation, wait_s: float, now_s: float) -> DegradationLevel:
        levels.add(degradation.level)
        return honest_update(degradation, wait_s, now_s)

    monkeypatch.setattr(AdmissionGate, "accepted", accepted)
    monkeypatch.setattr(OverloadMetrics, "refused", note)
    monkeypatch.setattr(Degradation, "update", update)
    for seed in seeds_of_block(block, _N_SEEDS):
        assert not simulate(seed, _scenario(seed)).problems, f"seed {seed}"
    assert {"sequences", "queue_tokens"} <= refused
    assert max(levels) >= DegradationLevel.FEWER_ANSWERS
