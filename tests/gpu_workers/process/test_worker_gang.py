"""Two ranks of one gang: both compute, one answers, and a plan that only one has got is run by neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.worker import Worker
from gpu_workers.settings import WorkerSettings
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.steps import Capacity, Idle, Plan, Reset, Result
from messages.transport.mailbox import MemoryMailbox, MemoryNetwork
from messages.wire.message import Message
from tests.support.waiting import next_turn
from tests.support.workers.small_scheduler import Row, SmallScheduler

DEADLINE_S = 60.0
SETTINGS = WorkerSettings(n_slots=4, max_length=256, max_step_tokens=128, hash_chain_pages=64)
SHAPES = {"tp": {"tp": 2}, "pp": {"pp": 2}}  # and the rank that answers: the first one that samples
ANSWERING = {"tp": "worker/0.0", "pp": "worker/0.1"}
RANKS = ["worker/0.0", "worker/0.1"]


class Gang:
    """Two workers, and the supervisor and schedulers they talk to."""

    def __init__(self, gang_dir: Path, shape: str) -> None:
        self.answering = ANSWERING[shape]
        self.network = MemoryNetwork()
        self.supervisor = MemoryMailbox(self.network, "supervisor/0", 1)
        self.workers = [self._worker(rank, gang_dir, SHAPES[shape]) for rank in range(2)]
        self.lives = [asyncio.create_task(worker.run()) for worker in self.workers]

    def _worker(self, rank: int, gang_dir: Path, shape: dict[str, int]) -> Worker:
        spawn_spec = SpawnSpec(
            name=RANKS[rank],
            incarnation=1,
            endpoint=f"memory://{RANKS[rank]}",
            supervisor_endpoint=self.supervisor.endpoint,
            supervisor_incarnation=1,
            run_dir=str(gang_dir),
            gang_dir=str(gang_dir),
            log_format="json",
            log_level="error",
            settings=msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(SETTINGS, rank=rank, **shape))),
        )
        return Worker(spawn_spec, lambda name, life, endpoint: MemoryMailbox(self.network, name, life, endpoint))

    def scheduler(self, incarnation: int) -> MemoryMailbox:
        """A new life of the scheduler, announced to both ranks."""
        mailbox = MemoryMailbox(self.network, "scheduler/0", incarnation)
        peer = lifecycle.Peer(name="scheduler/0", incarnation=incarnation, endpoint=mailbox.endpoint)
        for rank in RANKS:
            self.supervisor.connect(rank, 1, f"memory://{rank}")
            self.supervisor.send(rank, lifecycle.PeerUp(peer=peer))
            mailbox.connect(rank, 1, f"memory://{rank}")
        return mailbox


async def hear(mailbox: MemoryMailbox, n: int, sender: str = "") -> list[Message]:
    """The next n messages, all from this sender. Reports of idleness are left out: they come by the clock, between any two
    others."""
    heard: list[Message] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(heard) < n:
            deliveries = await mailbox.wait_mail()
            assert {delivery.sender for delivery in deliveries} <= {sender or delivery.sender for delivery in deliveries}
            messages = [delivery.message for delivery in deliveries]
            heard += [message for message in messages if not isinstance(message, Idle)]
    return heard


@pytest.fixture(params=SHAPES)
async def gang(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gang]:
    gang = Gang(tmp_path, request.param)
    yield gang
    for rank in RANKS:
        gang.supervisor.send(rank, lifecycle.Stop())
    assert await asyncio.wait_for(asyncio.gather(*gang.lives), DEADLINE_S) == [0, 0]


def ids(message: Any) -> list[int]:
    assert isinstance(message, Result)
    return message.ids.tolist()


def plan_of(prompt: list[int]) -> tuple[SmallScheduler, Plan]:
    plans = SmallScheduler(HashChainEngine(SETTINGS))
    return plans, plans.write_plan([Row(plans.add(prompt), len(prompt))])


async def test_only_the_first_rank_that_samples_answers(gang: Gang) -> None:
    scheduler = gang.scheduler(1)
    plans, first = plan_of([5, 6])
    (s,) = plans.by_slot.values()
    for message in (Reset(epoch=1), first, plans.write_plan([Row(s)])):
        scheduler.send_all(RANKS, message)
    heard = await hear(scheduler, 3, gang.answering)
    assert isinstance(heard[0], Capacity)
    assert ids(heard[1]) + ids(heard[2]) == hash_chain_tokens([5, 6], 2, 0, 32_768)


async def test_a_plan_of_a_dying_scheduler_is_run_by_all_or_none(gang: Gang) -> None:
    dying = gang.scheduler(1)
    plans, first = plan_of([5, 6])
    (s,) = plans.by_slot.values()
    dying.send_all(RANKS, Reset(epoch=1))
    dying.send_all(RANKS, first)
    dying.send(RANKS[0], plans.write_plan([Row(s)]))  # and dies before it tells rank 1
    await hear(dying, 2)
    successor = gang.scheduler(2)
    _, fresh = plan_of([9])
    successor.send_all(RANKS, Reset(epoch=1))
    successor.send_all(RANKS, fresh)
    heard = await hear(successor, 2)
    assert isinstance(heard[0], Capacity)
    assert ids(heard[1]) == hash_chain_tokens([9], 1, 0, 32_768)
    async with asyncio.timeout(DEADLINE_S):
        while [worker.metrics.steps for worker in gang.workers] != [2, 2]:  # rank 1 may be a moment behind; never ahead
            assert max(worker.metrics.steps for worker in gang.workers) == 2
            await next_turn()
