"""A small dose of mutated requests, frames and internal messages for a real server; the large one is in tests/long."""

from __future__ import annotations

import pytest

from tests.support.fuzz.fuzz_case import fuzz_server


@pytest.mark.slow
def test_a_real_server_survives_mutated_requests() -> None:
    fuzz_server(seed=1, n_requests=500, n_frames=250, n_messages=1_000)
