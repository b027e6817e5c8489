"""One or two gateways with in-memory mailboxes and a scripted scheduler. Clients reach them through httpx or real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec

from actors.gateway.gateway_actor import GatewayActor
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.settings import GatewaySettings
from messages.ids import actor_name, replica_of
from messages.lifecycle.spawn_spec import LISTEN_SOCKET
from messages.run_dir import http_socket, zeromq_endpoint
from messages.transport.mailbox import MemoryMailbox
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.journal_file import lose_unwritten
from tests.support.memory_cluster import MemoryCluster, ScriptedActor, spawn_spec_of


class Rig:
    """One gateway and the actors around it. Use `rig()` to start one."""

    def __init__(self, cluster: MemoryCluster, settings: GatewaySettings, listen_fd: int | None = None) -> None:
        self.cluster, self.settings = cluster, settings
        self._descriptors = {} if listen_fd is None else {LISTEN_SOCKET: listen_fd}
        self.gateway: GatewayActor

    async def start_gateway(self, incarnation: int = 1) -> GatewayActor:
        """Start the gateway, or a new incarnation of it, and wait until it is ready."""
        cluster, name = self.cluster, "gateway/0"
        cluster.incarnation_of[name] = incarnation
        spawn_spec = msgspec.structs.replace(spawn_spec_of(name, self.settings, incarnation), descriptors=self._descriptors)
        actor = GatewayActor(spawn_spec, lambda n, i, e: MemoryMailbox(cluster.network, n, i, e))
        cluster.actors[name] = (actor, asyncio.ensure_future(actor.run()))
        self.gateway = actor
        await cluster.wait_until(lambda: name in cluster.up)
        await actor.servers.wait_open()
        return actor

    async def add_scheduler(self, name: str = "scheduler/0", incarnation: int = 1, **options: bool) -> FakeScheduler:
        """Start a scheduler and its worker, and wait until the gateway knows them."""
        worker = actor_name("worker", replica_of(name), 0)
        if worker not in self.cluster.up:
            self.cluster.introduce(ScriptedActor(self.cluster, worker))
        scheduler = FakeScheduler(self.cluster, name, incarnation, **options)
        self.cluster.introduce(scheduler)
        await self.cluster.wait_until(lambda: self.gateway.incarnation_of(name) == incarnation)
        return scheduler

    def scheduler(self, name: str = "scheduler/0") -> FakeScheduler:
        """A scheduler that `add_scheduler` has started."""
        scheduler = self.cluster.scripted[name]
        assert isinstance(scheduler, FakeScheduler)
        return scheduler

    async def kill_gateway(self) -> None:
        """End the gateway as kill -9 does: it sends nothing more, and the journal keeps what was committed."""
        gateway = self.gateway
        if gateway.draining is not None:
            gateway.draining.stop()
        gateway.servers.abandon()
        if gateway.servers.zeromq is not None:
            await gateway.servers.zeromq.close()
        if gateway._manager is not None:
            gateway.manager.stop()
        if gateway.tracing is not None:
            gateway.tracing.leave()
            gateway.tracing.exporter.abandon()
        await self.cluster.kill("gateway/0")
        lose_unwritten(gateway.journal)
        await gateway.journal.close()

    @property
    def manager(self) -> RequestManager:
        """The request manager of the running gateway."""
        return self.gateway.manager

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the gateway's HTTP socket."""
        assert self.gateway.servers.http is not None
        return self.gateway.servers.http.address

    def leave_socket(self) -> int:
        """A duplicate of the gateway's listening socket, for `listen_at`: the supervisor keeps one."""
        assert self.gateway.servers.http is not None
        return os.dup(self.gateway.servers.http._socket.fileno())

    def listen_at(self, listen_fd: int) -> None:
        """The next gateway gets this listening socket."""
        self._descriptors = {LISTEN_SOCKET: listen_fd}

    def http(self) -> httpx.AsyncClient:
        """An HTTP client that calls the ASGI application without a socket."""
        transport = httpx.ASGITransport(app=self.gateway.servers.app)  # pyright: ignore[reportArgumentType]
        return httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60.0)


@asynccontextmanager
async def rig(*, with_scheduler: bool = True, with_socket: bool = False, **settings: Any) -> AsyncIterator[Rig]:
    """A running gateway, with one scheduler unless `with_scheduler` is False. Everything ends with the context."""
    cluster = MemoryCluster()
    listener = socket.create_server(("127.0.0.1", 0)) if with_socket else None
    one = Rig(cluster, GatewaySettings(**{"ack_messages": 1, **settings}), listener.detach() if listener else None)
    await one.start_gateway()
    try:
        if with_scheduler:
            await one.add_scheduler()
        yield one
    finally:
        if one.gateway.servers.http is not None:
            await one.gateway.servers.http.stop()
        await one.kill_gateway()
        await cluster.close()


class SecondGateway:
    """Stands for the rig's gateway where a call goes to gateway/1."""

    def __init__(self, gateway: GatewayActor) -> None:
        self.gateway = gateway


@asynccontextmanager
async def two_gateways(
    folder: str = "", *, has_zeromq: bool = False, **fields: Any
) -> AsyncIterator[tuple[Rig, Any, FakeScheduler]]:
    """Gateway 0, which a test may kill, gateway 1, and a scheduler that both know. `folder`: with journals; "": a new one.
    `has_zeromq`: clients reach them over ZeroMQ too.
    """
    with TemporaryDirectory(prefix="tg-") as new_folder:
        place = Path(folder or new_folder)
        own = [_own(place, index, has_zeromq=has_zeromq) for index in range(2)]
        sockets = [str(http_socket(place, index)) for index in range(2)]
        async with rig(with_scheduler=False, http_sockets=sockets, **own[0], **fields) as r:
            spawn_spec = spawn_spec_of("gateway/1", msgspec.structs.replace(r.settings, **own[1]), 1)
            second = GatewayActor(spawn_spec, lambda n, i, e: MemoryMailbox(r.cluster.network, n, i, e))
            r.cluster.incarnation_of["gateway/1"] = 1
            r.cluster.actors["gateway/1"] = (second, asyncio.ensure_future(second.run()))
            await r.cluster.wait_until(lambda: "gateway/1" in r.cluster.up)
            scheduler = await r.add_scheduler(is_automatic=False)
            await r.cluster.wait_until(lambda: second.incarnation_of("scheduler/0") == 1)
            try:
                yield r, SecondGateway(second), scheduler
            finally:
                await second.stop()
                await r.cluster.kill("gateway/1")


def _own(place: Path, index: int, *, has_zeromq: bool) -> dict[str, str]:
    zeromq = {"zeromq_endpoint": zeromq_endpoint(place, index)} if has_zeromq else {}
    return {"journal_path": str(place / f"journal-{index}"), **zeromq}
