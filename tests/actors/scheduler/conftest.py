"""The server in memory in which schedulers are tested."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from actors.scheduler.planning.decoding.decode_planner import DecodePlanner
from tests.support.memory_cluster import MemoryCluster


@pytest.fixture(autouse=True)
def plans_few_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests have few sequences, and what many do is what they look at."""
    monkeypatch.setattr(DecodePlanner, "least_rows", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    """Its actors and scripted members end with the test."""
    cluster = MemoryCluster()
    yield cluster
    await cluster.close()
