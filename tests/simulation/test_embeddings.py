"""Embeddings in simulated servers: every call gets the vectors of its texts, whoever dies, hangs or pauses meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from actors.gateway.embeddings.dispatcher import EmbeddingDispatcher
from tests.support.simulation.edges import Count
from tests.support.simulation.embedding import PAIRS
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import simulate

HARMED = Scenario(
    n_clients=1, n_deaths=4, n_pauses=2, n_aims=0, n_supervisor_deaths=1, n_embedding_clients=6, n_embedder_aims=3
)


@pytest.mark.parametrize("first", [0, pytest.param(10, marks=pytest.mark.long), pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.seeds
def test_every_call_gets_the_vectors_of_its_texts(first: int) -> None:
    hit: Count = Counter()
    for seed in range(first, first + (50 if first else 5)):
        outcome = simulate(seed, HARMED)
        assert not outcome.problems, seed
        hit.update(outcome.hit)
    assert not first or sum(pair in hit for pair in PAIRS) > len(PAIRS) / 2


def test_texts_that_a_dead_embedder_had_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddingDispatcher, "embedder_down", lambda self, cause: self._sent.clear())
    harmed = replace(HARMED, n_deaths=0, n_pauses=0, n_supervisor_deaths=0, n_embedder_aims=30)
    assert any(any("still waits" in problem for problem in simulate(seed, harmed).problems) for seed in range(3))
