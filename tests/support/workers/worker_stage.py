"""The stage on which a worker is tested: a supervisor and a scheduler of bare mailboxes, over both posts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.engine_loading import BuildEngine, build_engine
from gpu_workers.process.worker import run_worker
from gpu_workers.settings import WorkerSettings
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.steps import Reset
from messages.transport.mailbox import Mailbox, MemoryMailbox, MemoryNetwork
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message
from tests.support.workers.small_scheduler import SmallScheduler

DEADLINE_S = 60.0
SETTINGS = WorkerSettings(n_slots=4, max_length=256, max_step_tokens=128, hash_chain_pages=64, max_lease_steps=4)


def writer() -> SmallScheduler:
    """Writes plans for an engine of the same size as the worker's."""
    return SmallScheduler(HashChainEngine(SETTINGS))


@dataclass
class Stage:
    """A supervisor and a scheduler made of bare mailboxes around one worker."""

    make: Any
    run_dir: Path
    supervisor: Mailbox
    scheduler: Mailbox
    worker: asyncio.Task[int] | None = None
    heard: dict[str, list[Message]] = field(default_factory=lambda: {"supervisor": [], "scheduler": []})
    read: dict[str, int] = field(default_factory=lambda: {"supervisor": 0, "scheduler": 0})
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def endpoint(self, name: str) -> str:
        return self.make.endpoint(self.run_dir, name)

    def start(self, settings: WorkerSettings = SETTINGS, build: BuildEngine = build_engine, name: str = "worker/0.0") -> None:
        spawn_spec = SpawnSpec(
            name=name,
            incarnation=7,
            endpoint=self.endpoint("worker"),
            supervisor_endpoint=self.supervisor.endpoint,
            supervisor_incarnation=1,
            run_dir=str(self.run_dir),
            log_format="json",
            log_level="error",
            settings=msgspec.Raw(msgspec.json.encode(settings)),
            beat_s=0.02,
        )
        self.worker = asyncio.create_task(run_worker(spawn_spec, self.make.mailbox, build))
        self.readers = [asyncio.create_task(self._read(self.supervisor)), asyncio.create_task(self._read(self.scheduler))]

    async def _read(self, mailbox: Mailbox) -> None:
        while True:
            self.heard[mailbox.name.split("/")[0]] += [delivery.message for delivery in await mailbox.wait_mail()]
            self.came.set()

    async def expect(self, role: str, kind: type[Message], within_s: float = DEADLINE_S) -> Any:
        """The next message of this kind; others before it are skipped."""
        async with asyncio.timeout(within_s):
            while True:
                for index in range(self.read[role], len(self.heard[role])):
                    if isinstance(self.heard[role][index], kind):
                        self.read[role] = index + 1
                        return self.heard[role][index]
                self.came.clear()
                await self.came.wait()

    async def welcome(self, with_scheduler: bool = True) -> None:
        hello = await self.expect("supervisor", lifecycle.Hello)
        self.supervisor.connect("worker/0.0", 7, hello.endpoint)
        peer = lifecycle.Peer(name="scheduler/0", incarnation=3, endpoint=self.scheduler.endpoint)
        self.supervisor.send("worker/0.0", lifecycle.Welcome(peers=[peer] if with_scheduler else []))
        self.scheduler.connect("worker/0.0", 7, hello.endpoint)

    async def ready(self) -> None:
        await self.welcome()
        await self.expect("supervisor", lifecycle.Ready)

    async def begin(self, settings: WorkerSettings = SETTINGS, build: BuildEngine = build_engine) -> SmallScheduler:
        """A ready worker that has heard Reset, and who writes plans for it."""
        self.start(settings, build)
        await self.ready()
        self.tell(Reset(epoch=1))
        return writer()

    def tell(self, message: Message) -> None:
        """As the scheduler."""
        self.scheduler.send("worker/0.0", message)

    async def stop(self) -> int:
        self.supervisor.send("worker/0.0", lifecycle.Stop())
        await self.expect("supervisor", lifecycle.Stopped)
        return await self.status()

    async def status(self) -> int:
        assert self.worker is not None
        return await asyncio.wait_for(self.worker, DEADLINE_S)


class MemoryPost:
    def __init__(self) -> None:
        self._network = MemoryNetwork()

    def endpoint(self, run_dir: Path, name: str) -> str:
        return f"memory://{name}"

    def mailbox(self, name: str, incarnation: int, endpoint: str) -> Mailbox:
        return MemoryMailbox(self._network, name, incarnation, endpoint)


class ZmqPost:
    def endpoint(self, run_dir: Path, name: str) -> str:
        return f"ipc://{run_dir}/{name}"

    def mailbox(self, name: str, incarnation: int, endpoint: str) -> Mailbox:
        return ZmqMailbox(name, incarnation, endpoint)
