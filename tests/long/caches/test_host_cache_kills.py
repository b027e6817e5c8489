"""Kills of every actor while pages are evicted to the host cache and come back: every answer is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messages.lifecycle.tree import ChildStatus, StatusReport
from tests.support.caches.role_killer import RoleKiller, answers_amid_kills
from tests.support.real_server import WITH_SPARES, RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
_ROLES = ("worker", "scheduler", "vault", "gateway", "custodian", "cache_directory", "speculation", "supervisor")
_N_CLIENTS = 8
_DEVICE_PAGES = 60
_ROUNDS = 2
_LOADED = 10  # pages that come back between two kills
_BUDGETS = ("supervisor.gang_restarts=100000", "supervisor.actor_restarts=100000", "supervisor.restart_attempts=1000")
_SETS = ("scheduler.tier_loads=always", f"worker.hash_chain_pages={_DEVICE_PAGES}", "worker.hash_chain_step_s=0.002")


class _Loads:
    """What comes back from the tier, as far as the scheduler has told."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self.n_loaded = self.n_failed = 0.0
        self._told = [0.0, 0.0]  # both, since the last kill

    def wait(self) -> None:
        """Wait until one scheduler has let pages come back from now on."""
        first: dict[int, ChildStatus] = {}  # by incarnation

        def has_loaded(report: StatusReport) -> bool:
            for child in report.children:
                if child.name == "scheduler/0" and "host_loaded" in child.statistics:
                    begun = first.setdefault(int(child.incarnation), child)
                    self._told = [child.statistics[name] - begun.statistics[name] for name in ("host_loaded", "host_failed")]
                    return report.state == "serving" and self._told[0] >= _LOADED
            return False

        self._server.wait_for(has_loaded)
        self.n_loaded, self.n_failed = self.n_loaded + self._told[0], self.n_failed + self._told[1]


_FLAGS = {
    "standby": ("--standby", "--host-cache", "64KiB"),
    "vault": ("--vault", "--host-cache", "64KiB"),
    "adaptive": (
        "--vault",
        "--host-cache",
        "20KiB",
        "--host-cache-dtype",
        "adaptive",
    ),  # 264 places for 240 pages, or 160 as they are
}


@pytest.fixture(params=list(_FLAGS))
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    flags = ("--model", "hash-chain", "--max-length", "256", *_FLAGS[request.param])
    with real_server(*WITH_SPARES, *flags, *(part for each in (*_SETS, *_BUDGETS) for part in ("--set", each))) as server:
        yield server


async def test_kills_of_every_actor_while_pages_come_back(server: RealServer) -> None:
    loads = _Loads(server)
    killer = RoleKiller(server, _ROLES * _ROUNDS, loads.wait, loads.wait)
    right = await answers_amid_kills(server, killer, _N_CLIENTS)
    assert min(right) >= 1
    assert loads.n_loaded >= _LOADED * len(_ROLES) * _ROUNDS
    assert loads.n_failed < loads.n_loaded / 2, "most pages outlive the deaths of ranks and schedulers"
    print(f"{sum(right)} answers, {loads.n_loaded} pages loaded, {loads.n_failed} failed")
