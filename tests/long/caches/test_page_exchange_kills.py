"""Kills of every actor while pages move between two replicas: every answer is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messages.ids import role_of
from messages.lifecycle.tree import StatusReport
from tests.support.caches.role_killer import UNBOUNDED_RESTARTS, RoleKiller, answers_amid_kills
from tests.support.real_server import WITH_SPARES, RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
_ROLES = ("worker", "vault", "cache_directory", "gateway", "supervisor", "worker", "scheduler")
_N_CLIENTS = 40
_MOVED = 10  # pages that move between two kills, before the first scheduler dies: the next one borrows nothing for a while
_SETS = (
    "scheduler.tier_loads=always",
    "worker.exchange_bytes=16KiB",
    "worker.hash_chain_pages=200",
    "worker.hash_chain_step_s=0.002",
    *UNBOUNDED_RESTARTS,
)


def _await_moves(server: RealServer) -> None:
    """Wait until pages have moved from now on."""
    first: list[float] = []

    def has_moved(report: StatusReport) -> bool:
        told = [child.statistics for child in report.children if role_of(child.name) == "scheduler"]
        if report.state != "serving" or not all("exchange_moved" in one for one in told):
            return False
        n_moved = sum(one["exchange_moved"] for one in told)
        first.append(n_moved)
        return n_moved >= first[0] + _MOVED

    server.wait_for(has_moved)


@pytest.fixture
def server() -> Iterator[RealServer]:
    flags = ("--model", "hash-chain", "--max-length", "256", "--replicas", "2")
    with real_server(*WITH_SPARES, *flags, *(part for each in _SETS for part in ("--set", each))) as server:
        yield server


async def test_kills_of_every_actor_while_pages_move(server: RealServer) -> None:
    killer = RoleKiller(server, _ROLES, lambda: _await_moves(server), server.wait_serving)
    right = await answers_amid_kills(server, killer, _N_CLIENTS)
    assert min(right) >= 1
    print(f"{sum(right)} answers")
