"""The deck of a campaign: every fault of every role comes once before any comes again."""

from __future__ import annotations

import random

from ops.bench.campaign.deck import Card, Deck, Harm, Phase, coverage
from supervisor.drill.faults import FaultKind


def test_every_card_comes_once_before_any_comes_again() -> None:
    deck = Deck(["worker", "supervisor"], list(Harm), random.Random(1))
    first, second = [deck.draw(Phase.DECODE) for _ in range(5)], [deck.draw(Phase.DECODE) for _ in range(5)]
    assert len(set(first)) == 5
    assert set(first) == set(second)
    assert Card("supervisor", Phase.DECODE, Harm.FREEZE) not in first, "its parent waits ten seconds"
    assert deck.draw(Phase.LOADING).phase is Phase.LOADING


def test_the_coverage_counts_each_fault() -> None:
    kill = Card("worker", Phase.PREFILL, Harm.KILL)
    assert coverage([kill, Card("worker", Phase.PREFILL, Harm.PAUSE), kill]) == {"worker": {"prefill": {"kill": 2, "pause": 1}}}
    assert kill.label == "kill worker, prefill"
    assert Harm.FREEZE.fault("worker/0.0").kind is FaultKind.PAUSE
