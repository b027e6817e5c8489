"""Kills of every actor while the host cache grows and shrinks with its load: every answer is right."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from messages.lifecycle.tree import StatusReport
from tests.support.caches.changing_load import ChangingLoad
from tests.support.caches.role_killer import EVERY_ROLE, UNBOUNDED_RESTARTS, answers_amid_kills
from tests.support.real_server import WITH_SPARES, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
_N_CLIENTS = 8
_DEVICE_PAGES, _LEAST, _PAGE_BYTES = 60, 10, 128  # all prompts together take 264 pages, with their answers
_MANY, _FEW = 100, 30  # places in use: fewer than all prompts want, more than is needed without them
_SETS = (
    "scheduler.host_quiet_s=0.5",
    "scheduler.tier_loads=always",
    f"worker.hash_chain_pages={_DEVICE_PAGES}",
    f"worker.host_cache_least_bytes={_LEAST * _PAGE_BYTES}",
    "worker.hash_chain_step_s=0.002",
)
_SHIFTED = (*EVERY_ROLE[1:], EVERY_ROLE[0])  # who dies after the tier has shrunk there, dies after it has grown here
_NO_VAULT = tuple(role for role in EVERY_ROLE if role != "vault")
_CASES = {
    "vault": (EVERY_ROLE, ("--vault",)),
    "standby": (_SHIFTED, ("--standby",)),
    "without a vault": (_NO_VAULT, ()),
    "disk": (_SHIFTED, ("--vault", "--disk-cache", "2MiB")),
}


def _n_in_use(report: StatusReport) -> float:
    """Places whose memory is not with the system; nan while that is not known."""
    for child in report.children:
        if child.name == "scheduler/0" and report.state == "serving":
            return child.statistics.get("host_in_use", math.nan)
    return math.nan


@pytest.fixture(params=list(_CASES))
def tier(request: pytest.FixtureRequest) -> Iterator[ChangingLoad]:
    roles, more = _CASES[request.param]
    flags = ("--model", "hash-chain", "--max-length", "256", "--host-cache", "64KiB", *more)
    sets = (*_SETS, *UNBOUNDED_RESTARTS)
    with real_server(*WITH_SPARES, *flags, *(part for each in sets for part in ("--set", each))) as server:
        yield ChangingLoad(server, roles, _n_in_use, _FEW, _MANY)


async def test_kills_of_every_actor_while_the_host_cache_grows_and_shrinks(tier: ChangingLoad) -> None:
    right = await answers_amid_kills(tier.server, tier.killer, _N_CLIENTS)
    assert min(right) >= 1
    assert tier.n_grown >= 1 + len(tier.roles) // 2
    assert tier.n_shrunk >= tier.n_grown
    print(f"{sum(right)} answers, grown {tier.n_grown} times, shrunk {tier.n_shrunk} times")
