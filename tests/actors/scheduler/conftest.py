"""The server in memory in which schedulers are tested."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.memory_cluster import MemoryCluster


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    """Its actors and scripted members end with the test."""
    cluster = MemoryCluster()
    yield cluster
    await cluster.close()
