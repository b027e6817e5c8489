"""Which pairs of an edge and a fault were hit, and runs that seek those that were not."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.simulation.edges import OF_ANSWERS, OF_DISK, OF_TIER, PAIRS, Count, Fault
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
    n_clients, n_host_places, n_disk_places = 9 if pair in OF_ANSWERS else 8, 0, 0
    if pair in OF_TIER:
        n_clients, n_host_places = 20, 40
    elif pair in OF_DISK:
        n_clients, n_host_places, n_disk_places = 24, 12, 600
    return Scenario(
        n_clients=n_clients,
        n_host_places=n_host_places,
        n_disk_places=n_disk_places,
        tp=usual.tp,
        vocabulary=usual.vocabulary,
        sought=pair,
    )


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
