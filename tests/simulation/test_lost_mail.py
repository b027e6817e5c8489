"""Messages and answers that are lost or repeated at random, and links that are cut, with and without deaths beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messages.transport.outbox import Outbox
from messages.wire.envelope import LinkAnswer
from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.network import Loss
from tests.support.simulation.scenario import Scenario, scenario_of
from tests.support.simulation.world import simulate

_SEEDS_PER_TEST = 4
LOSS = Loss(lost_share=0.02, repeated_share=0.02)


@pytest.mark.seeds
@pytest.mark.parametrize("block", range(DEPTH))
def test_every_promise_holds_although_mail_is_lost(block: int) -> None:
    for seed in seeds_of_block(block, _SEEDS_PER_TEST):
        scenario = replace(scenario_of(seed), loss=LOSS, n_cuts=2 + seed % 4)
        outcome = simulate(seed, scenario if seed % 2 else replace(scenario, n_deaths=0))
        assert not outcome.problems, f"seed {seed}"


@pytest.mark.parametrize("tp", [2, 3])
def test_no_gang_is_restarted_because_a_plan_or_a_beat_comes_late(tp: int) -> None:
    """A rank waits for the plan of another one until that was sent again; no step hangs."""
    often = Loss(lost_share=0.05, repeated_share=0.02)
    for seed in range(1, 7):
        outcome = simulate(seed, Scenario(n_deaths=0, n_cuts=3, tp=tp, loss=often))
        kills = [line["reason"] for line in outcome.log if line["event"] == "killing child"]
        assert not [reason for reason in kills if reason.startswith("stuck")], f"seed {seed}"


def test_without_repetitions_the_promise_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What receivers ask for again is ignored: the simulation shows what the links would lose."""
    scenario = Scenario(n_deaths=0, n_cuts=6, loss=LOSS)
    assert not simulate(1, scenario).problems
    handle_answer = Outbox.handle_answer
    monkeypatch.setattr(
        Outbox, "handle_answer", lambda box, answer: handle_answer(box, LinkAnswer(answer.link, answer.handled, wanted=0))
    )
    assert any(simulate(seed, scenario).problems for seed in range(1, 10))
