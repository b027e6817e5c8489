"""The bench of balancing in a real server: all that comes is answered, and counted by replica."""

from __future__ import annotations

import asyncio

import pytest

from ops.bench.balance.run import BalanceLoad
from ops.bench.balance.served import serve_balance
from tests.support.real_server import real_server

_FLAGS = ("--model", "hash-chain", "--gpus", "0", "--replicas", "2", "--gateways", "2", "--max-length", "4096", "--no-standby")


@pytest.mark.long
def test_a_load_is_answered_and_its_share_in_the_caches_is_seen() -> None:
    with real_server(*_FLAGS, "--set", "worker.hash_chain_pages=4000", "--set", "worker.max_step_tokens=1024") as server:
        found = asyncio.run(serve_balance(server.url, BalanceLoad.ZIPF, rate=6.0, n_minutes=3, seed=1, minute_s=4.0))
    assert found.n_given_up == 0
    assert len(found.first_token_s) > 40
    assert len(found.imbalances) == 2
    assert all(0.0 <= one < 1.0 for one in found.imbalances)
    assert 0.1 < found.cached_share < 1.0
