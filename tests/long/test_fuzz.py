"""100,000 mutated HTTP requests and 50,000 mutated ZeroMQ messages, without a restart and without growth."""

from __future__ import annotations

import pytest

from tests.support.fuzz.fuzz_case import fuzz_server

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", [11, 12])
def test_a_real_server_survives_a_flood_of_mutated_requests(seed: int) -> None:
    fuzz_server(seed, n_requests=50_000, n_frames=25_000)
