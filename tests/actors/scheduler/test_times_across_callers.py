"""What is computed for a caller does not depend on what others have asked: its times tell nothing of their prompts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.eviction.choice import EvictionName
from actors.pages.tier_loads import TierLoads
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from messages.caches.disk_moves import MoveDiskPages
from messages.caches.exchange import ExchangePages
from messages.caches.page_moves import MovePages
from messages.generation.sequences import Holder
from messages.steps import PAGE_TOKENS, Plan
from tests.support.memory_cluster import CollectingGateway, Gang, MemoryCluster
from tests.support.planner_bench import PlannerBench
from tests.support.scheduler import disk_bench
from tests.support.scheduler.scheduler_bench import SchedulerBench, prompt_of

VICTIM, ATTACKER = b"victim", b"attack"
_Steps = list[tuple[int, int, bool]]


def computed_for(probe: list[int], asked_before: list[list[int]], *, by: bytes, eviction: str = "lru") -> _Steps:
    """The rows that are computed for a prompt of the attacker, after this caller has asked for others."""
    bench = PlannerBench({"eviction": eviction}, max_step_tokens=32)
    for prompt in asked_before:
        bench.add(prompt, 2, caller=by, cache_scope=by)
        bench.run()
    bench.add(probe, 2, caller=ATTACKER, cache_scope=ATTACKER)
    rows: _Steps = []
    while (planned := bench.plan()) is not None or bench.plans:
        rows += [(start, count, samples) for _, start, count, samples in bench.rows(planned)]
        bench.apply()
    return rows


@pytest.mark.parametrize("eviction", [name.value for name in EvictionName])
@given(st.integers(1, 100), st.integers(0, 100), st.integers(1, 4))
def test_a_prompt_of_another_caller_changes_no_step(eviction: str, n_probe: int, n_common: int, n_asked: int) -> None:
    probe = [i % 90 for i in range(n_probe)]
    like_it = [[*probe[:n_common], 91 + number] for number in range(n_asked)]  # whole, in part, or not at all
    unlike_it = [[95, *([96] * (len(one) - 1))] for one in like_it]
    known = computed_for(probe, like_it, by=VICTIM, eviction=eviction)
    unknown = computed_for(probe, unlike_it, by=VICTIM, eviction=eviction)
    assert known == unknown


def test_a_prompt_of_its_own_is_not_computed_again() -> None:
    probe = [i % 90 for i in range(64)]
    assert computed_for(probe, [probe], by=ATTACKER)[0][0] > 0
    assert computed_for(probe, [probe], by=VICTIM)[0][0] == 0


class _Log(Gang):
    """A gang that remembers what its scheduler tells it to do, without the contents of pages."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.told: list[tuple[Any, ...]] = []
        super().__init__(*args, **fields)

    def handle(self, sender: str, message: object) -> None:
        match message:
            case Plan():
                rows = (message.row_slots, message.row_counts, message.page_slots, message.page_ids)
                self.told.append(("plan", *(column.tolist() for column in rows)))
            case MovePages():
                self.told.append(("loads", message.loaded_pages.tolist(), len(message.stored_pages)))
            case MoveDiskPages():
                self.told.append(("disk", message.read_places.tolist(), len(message.written_places)))
            case ExchangePages():
                self.told.append(("exchange", message.loaded_pages.tolist()))
            case _:
                pass
        super().handle(sender, message)


async def told_for_a_prompt(n_others: int, asked: int, *, by: bytes) -> tuple[list[tuple[Any, ...]], int]:
    """What the ranks are told for prompt 1 of the attacker, after a caller has asked for prompt `asked`, and the attacker for
    so many others; and how many of its tokens were not computed."""
    bench = SchedulerBench(MemoryCluster(), disk_bench.TIERED, tier_loads="always")
    bench.gang = log = _Log(bench.cluster, bench.worker)
    await bench.begin()
    bench.gateway.submit(1, disk_bench.prompt(asked), 3, caller=by, cache_scope=by)
    await bench.ended(1)
    for number in range(2, 2 + n_others):
        bench.gateway.submit(number, disk_bench.prompt(100 + number), 3, caller=ATTACKER, cache_scope=ATTACKER)
        await bench.ended(number)
    await bench.cluster.settle(20)
    log.told.clear()
    bench.gateway.submit(99, disk_bench.prompt(1), 3, caller=ATTACKER, cache_scope=ATTACKER)
    await bench.ended(2 + n_others)
    await disk_bench.close(bench)
    return log.told, bench.gateway.endings[99].n_cached


@pytest.mark.parametrize(("n_others", "tier"), [(0, "device"), (3, "loads"), (9, "disk")])
async def test_pages_of_another_caller_in_any_tier_change_nothing_that_ranks_are_told(n_others: int, tier: str) -> None:
    known = await told_for_a_prompt(n_others, 1, by=VICTIM)
    unknown = await told_for_a_prompt(n_others, 2, by=VICTIM)
    assert known == unknown
    assert known[1] == 0
    own = await told_for_a_prompt(n_others, 1, by=ATTACKER)
    assert own[1] == disk_bench.PROMPT_PAGES * PAGE_TOKENS, "it would find a leak"
    assert own[0] != unknown[0]
    brought = {one[0] for one in own[0] if one[0] in ("loads", "disk") and one[1]}
    assert tier == "device" or tier in brought


async def told_beside_a_replica(asked: int, *, by: bytes) -> tuple[list[tuple[Any, ...]], int, int]:
    """As `told_for_a_prompt`, for prompt 1 at a replica, after a caller has asked another one for prompt `asked`. Its gateway
    believes that all of prompt 1 is there, which is the worst that it can believe. Last: how many pages came from there."""
    worker = msgspec.structs.replace(
        disk_bench.TIERED, host_cache_bytes=0, disk_cache_bytes=0, exchange_bytes=40 * disk_bench.PAGE_BYTES
    )
    cluster = MemoryCluster()
    settings = SchedulerSettings(tier_loads=TierLoads.ALWAYS)
    schedulers = [cluster.start(SchedulerActor, f"scheduler/{n}", settings) for n in (0, 1)]
    gangs = [_Log(cluster, worker, replica=n) for n in (0, 1)]
    gateway = CollectingGateway(cluster)
    await cluster.wait_until(lambda: {"scheduler/0", "scheduler/1"} <= cluster.up.keys())
    for member in (gateway, *gangs):
        cluster.introduce(member)
    await cluster.settle(20)
    prompt = prompt_of(1, 161)
    gateway.submit(1, prompt_of(asked, 161), 3, caller=by, cache_scope=by)
    await cluster.wait_until(lambda: 1 in gateway.endings)
    gateway.scheduler = "scheduler/1"
    gateway.submit(2, prompt, 3, caller=ATTACKER, cache_scope=ATTACKER, holder=Holder(replica=0, pages=10))
    await cluster.wait_until(lambda: 2 in gateway.endings)
    moved = schedulers[1]._gang.tier.exchange.borrower.counts.moved
    await cluster.close()
    return gangs[1].told, gateway.endings[2].n_cached, moved


async def test_pages_of_another_caller_at_another_replica_are_not_lent() -> None:
    known, unknown = await told_beside_a_replica(1, by=VICTIM), await told_beside_a_replica(2, by=VICTIM)
    assert known == unknown
    assert known[1:] == (0, 0)
    own = await told_beside_a_replica(1, by=ATTACKER)
    assert own[1:] == (160, 10), "it would find a leak"
    assert own[0] != unknown[0]
