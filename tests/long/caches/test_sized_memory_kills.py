"""Kills of every actor while a replica's memory for pages grows and shrinks with its load: every answer is right."""

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
_N_PAGES, _LEAST, _PAGE_BYTES = 300, 10, 128  # all prompts together take 264 pages, with their answers
_MANY, _FEW = 180, 120  # pages in use: more than that is needed for all prompts, less for few
_SETS = (
    "scheduler.kv_quiet_s=0.5",
    "scheduler.tier_loads=always",
    f"worker.hash_chain_pages={_N_PAGES}",
    f"worker.kv_least_bytes={_LEAST * _PAGE_BYTES}",
    "worker.hash_chain_step_s=0.002",
)
_SHIFTED = (*EVERY_ROLE[1:], EVERY_ROLE[0])  # who dies after the memory has shrunk there, dies after it has grown here
_CASES = {"vault": (EVERY_ROLE, ("--vault",)), "standby": (_SHIFTED, ("--standby", "--host-cache", "64KiB"))}


def _n_in_use(report: StatusReport) -> float:
    """Pages whose memory is not with the system; nan while that is not known."""
    for child in report.children:
        if child.name == "scheduler/0" and child.statistics.get("pages") and report.state == "serving":
            return child.statistics["pages"] - child.statistics.get("pages_returned", 0.0)
    return math.nan


@pytest.fixture(params=list(_CASES))
def load(request: pytest.FixtureRequest) -> Iterator[ChangingLoad]:
    roles, more = _CASES[request.param]
    flags = ("--model", "hash-chain", "--max-length", "256", *more)
    sets = (*_SETS, *UNBOUNDED_RESTARTS)
    with real_server(*WITH_SPARES, *flags, *(part for each in sets for part in ("--set", each))) as server:
        yield ChangingLoad(server, roles, _n_in_use, _FEW, _MANY)


async def test_kills_of_every_actor_while_memory_grows_and_shrinks(load: ChangingLoad) -> None:
    right = await answers_amid_kills(load.server, load.killer, _N_CLIENTS)
    assert min(right) >= 1
    assert load.n_grown == load.n_shrunk == len(EVERY_ROLE) / 2 + 1
    print(f"{sum(right)} answers, grown {load.n_grown} times")
