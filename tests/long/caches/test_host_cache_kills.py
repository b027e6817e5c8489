"""Kills of every actor while pages are evicted to the host cache and the disk, and come back: every answer is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from messages.lifecycle.tree import ChildStatus, StatusReport
from tests.support.caches.role_killer import EVERY_ROLE, UNBOUNDED_RESTARTS, RoleKiller, answers_amid_kills
from tests.support.real_server import WITH_SPARES, RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
_N_CLIENTS = 8
_DEVICE_PAGES = 60
_LOADED = 10  # pages that come back between two kills
_SETS = ("scheduler.tier_loads=always", f"worker.hash_chain_pages={_DEVICE_PAGES}", "worker.hash_chain_step_s=0.002")


@dataclass(frozen=True)
class _Case:
    """Flags of a server; the roles of which one process each is killed; from where pages have to come back between two kills;
    the policies that decide together what is evicted."""

    flags: tuple[str, ...]
    roles: tuple[str, ...] = EVERY_ROLE
    tier: str = "host"
    policies: tuple[str, ...] = ("lru",)


_CASES = {
    "standby": _Case(("--standby", "--host-cache", "64KiB"), roles=EVERY_ROLE * 2),
    "vault": _Case(("--vault", "--host-cache", "64KiB"), roles=EVERY_ROLE * 2),
    # 264 places for 240 pages, or 160 as they are
    "adaptive places": _Case(("--vault", "--host-cache", "20KiB", "--host-cache-dtype", "adaptive"), roles=EVERY_ROLE * 2),
    "w-tinylfu": _Case(("--vault", "--host-cache", "64KiB", "--eviction", "w-tinylfu"), policies=("w-tinylfu",)),
    "adaptive eviction": _Case(
        ("--vault", "--host-cache", "64KiB", "--eviction", "adaptive"), policies=("lru", "lfu", "fifo", "w-tinylfu")
    ),
    # 64 places in memory, so most pages of the 240 come back from the disk
    "disk": _Case(("--vault", "--host-cache", "8KiB", "--disk-cache", "2MiB"), tier="disk"),
    "disk without a vault": _Case(
        ("--host-cache", "8KiB", "--disk-cache", "2MiB"), tuple(role for role in EVERY_ROLE if role != "vault"), tier="disk"
    ),
}
_EVICTED = "_evictions"  # how the name of one statistic of each policy ends
_COUNTS = {"host": ("host_loaded", "host_failed"), "disk": ("disk_read", "disk_failed")}


class _Loads:
    """What comes back from a tier, as far as the scheduler has told."""

    def __init__(self, server: RealServer, tier: str) -> None:
        self._server, self._counts = server, _COUNTS[tier]
        self.n_loaded = self.n_failed = 0.0
        self._told = [0.0, 0.0]  # both, since the last kill
        self.last: Mapping[str, float] = {}  # the newest statistics

    def wait(self) -> None:
        """Wait until one scheduler has let pages come back from now on."""
        first: dict[int, ChildStatus] = {}  # by incarnation

        def has_loaded(report: StatusReport) -> bool:
            for child in report.children:
                if child.name == "scheduler/0" and self._counts[0] in child.statistics:
                    begun = first.setdefault(int(child.incarnation), child)
                    self.last = child.statistics
                    self._told = [child.statistics[name] - begun.statistics[name] for name in self._counts]
                    return report.state == "serving" and self._told[0] >= _LOADED
            return False

        self._server.wait_for(has_loaded)
        self.n_loaded, self.n_failed = self.n_loaded + self._told[0], self.n_failed + self._told[1]


@pytest.fixture(params=_CASES.values(), ids=list(_CASES))
def case(request: pytest.FixtureRequest) -> _Case:
    return request.param


@pytest.fixture
def server(case: _Case, tmp_path: Path) -> Iterator[RealServer]:
    sets = (*_SETS, *UNBOUNDED_RESTARTS, f"worker.disk_cache_dir={tmp_path / 'pages'}")
    flags = ("--model", "hash-chain", "--max-length", "256", *case.flags)
    with real_server(*WITH_SPARES, *flags, *(part for each in sets for part in ("--set", each))) as server:
        yield server


async def test_kills_of_every_actor_while_pages_come_back(server: RealServer, case: _Case) -> None:
    loads = _Loads(server, case.tier)
    right = await answers_amid_kills(server, RoleKiller(server, case.roles, loads.wait, loads.wait), _N_CLIENTS)
    assert min(right) >= 1
    assert loads.n_loaded >= _LOADED * len(case.roles)
    assert loads.n_failed < loads.n_loaded / 2, "most pages outlive the deaths of ranks and schedulers"
    evictions = {name.removesuffix(_EVICTED): n for name, n in loads.last.items() if name.endswith(_EVICTED)}
    assert set(evictions) == set(case.policies)
    assert sum(evictions.values()) > 0
    print(f"{sum(right)} answers, {loads.n_loaded} pages loaded, {loads.n_failed} failed")
