"""Two gateways of one server in memory, with a scheduler that both know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from actors.gateway.gateway_actor import GatewayActor
from messages.run_dir import front_endpoint, http_socket
from messages.transport.mailbox import MemoryMailbox
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.memory_cluster import birth_of


class SecondGateway:
    """Stands for the rig's gateway where a call goes to gateway/1."""

    def __init__(self, gateway: GatewayActor) -> None:
        self.gateway = gateway


@asynccontextmanager
async def two_gateways(
    folder: str = "", *, has_fronts: bool = False, **fields: Any
) -> AsyncIterator[tuple[Rig, Any, FakeScheduler]]:
    """Gateway 0, which a test may kill, gateway 1, and a scheduler that both know. `folder`: with journals; "": a new one.
    `has_fronts`: clients reach them over ZeroMQ too.
    """
    with TemporaryDirectory(prefix="tg-") as new_folder:
        place = Path(folder or new_folder)
        own = [_own(place, index, has_fronts=has_fronts) for index in range(2)]
        sockets = [str(http_socket(place, index)) for index in range(2)]
        async with rig(with_scheduler=False, http_sockets=sockets, **own[0], **fields) as r:
            birth = birth_of("gateway/1", msgspec.structs.replace(r.settings, **own[1]), 1)
            second = GatewayActor(birth, lambda n, i, e: MemoryMailbox(r.cluster.network, n, i, e))
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


def _own(place: Path, index: int, *, has_fronts: bool) -> dict[str, str]:
    front = {"front_endpoint": front_endpoint(place, index)} if has_fronts else {}
    return {"journal_path": str(place / f"journal-{index}"), **front}
