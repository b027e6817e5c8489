"""Which pairs of an edge and a fault were hit, and runs that seek those that were not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.support.simulation.edges import (
    OF_ANSWERS,
    OF_COPIES,
    OF_DISK,
    OF_EXCHANGE,
    OF_PLACES,
    OF_SIZING,
    OF_TIER,
    PAIRS,
    Count,
    Fault,
)
from tests.support.simulation.scenario import Outcome, Scenario, scenario_of
from tests.support.simulation.world import simulate

_APART = 80  # first seeds of two pairs
TRIES = 240  # a pair needs a server with its role, clients that make the edge happen, and sometimes luck


def missing(hit: Count) -> list[tuple[str, Fault]]:
    """The pairs that nothing has hit."""
    return [pair for pair in PAIRS if pair not in hit]


def seeking(pair: tuple[str, Fault], seed: int) -> Scenario:
    """A server and clients of this seed; the fault happens as soon as the edge is reached."""
    usual = scenario_of(seed)
    same = Scenario(tp=usual.tp, vocabulary=usual.vocabulary, sought=pair)
    if pair in OF_TIER:
        return replace(same, n_clients=20, n_host_places=40)
    if pair in OF_DISK:
        return replace(same, n_clients=24, n_host_places=12, n_disk_places=600)
    if pair in OF_COPIES:
        beside = replace(same, copies_beside=True, are_returning=True, copy_faults=0.1, n_replicas=1)
        return replace(beside, n_clients=26, n_host_places=100, n_resets=6 if "forgets" in pair[0] else 0)
    if pair in OF_EXCHANGE:
        return replace(same, n_clients=8, n_exchange_places=20)
    if pair in OF_PLACES:
        return replace(same, n_clients=24, n_host_places=40, n_least_places=2)
    if pair in OF_SIZING:
        return replace(same, n_clients=8, n_least_pages=4)
    return replace(same, n_clients=9 if pair in OF_ANSWERS else 8)


def seek(pair: tuple[str, Fault]) -> Iterator[Outcome]:
    """Runs until one has hit the pair, at most `TRIES`."""
    first = PAIRS.index(pair) * _APART
    for seed in range(first, first + TRIES):
        outcome = simulate(seed, seeking(pair, seed))
        yield outcome
        if pair in outcome.hit:
            return


def show(hit: Count, reached: dict[str, int]) -> None:
    """Print a line for each edge: how often it was reached, and how often each fault has hit it."""
    for edge in dict.fromkeys(edge for edge, _ in PAIRS):
        counts = [f"{fault.value} {hit[edge, fault] or 'NEVER'}" for known, fault in PAIRS if known == edge]
        print(f"{edge:40} reached {reached.get(edge) or 'NEVER':>9}: {', '.join(counts)}")
