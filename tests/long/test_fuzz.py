"""100,000 mutated HTTP requests, 50,000 mutated messages of ZeroMQ clients and 50,000 internal ones: no restart, no growth."""

from __future__ import annotations

import pytest

from tests.support.fuzz.fuzz_case import fuzz_server
from tests.support.fuzz.inbox_case import fuzz_inboxes
from tests.support.real_server import real_server

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", [11, 12])
def test_a_real_server_survives_a_flood_of_mutated_requests(seed: int) -> None:
    fuzz_server(seed, n_requests=50_000, n_frames=25_000)


@pytest.mark.parametrize("seed", [21, 22])
def test_internal_inboxes_survive_a_flood_of_mutated_messages(seed: int) -> None:
    """With a vault and two gateways, so that every kind of socket exists."""
    step = ("--set", "worker.hash_chain_step_s=0.005")
    with real_server("--model", "hash-chain", "--gateways", "2", "--vault", *step) as server:
        fuzz_inboxes(server, seed, n_messages=25_000)
