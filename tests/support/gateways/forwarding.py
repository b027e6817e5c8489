"""Two gateways, of which one forwards calls to the other."""

from __future__ import annotations

import asyncio
import os

from actors.gateway.http.server import HttpServer
from actors.gateway.other_gateways.owners import Owners
from tests.support.gateway.gateway_rig import Rig

OWNERS = Owners(1, ["zero", "one"])


def key_of(owner: int, prefix: str = "key") -> str:
    """A key that belongs to gateway `owner`."""
    return next(key for n in range(1000) if bool(OWNERS.socket_of(key := f"{prefix}-{n}")) == (owner == 0))


async def until_submitted(r: Rig, n: int) -> None:
    """Wait until the scheduler has been given `n` sequences."""
    await r.cluster.wait_until(lambda: len(r.scheduler().submits) == n)


async def replace_owner(r: Rig) -> HttpServer:
    """Kill gateway 0 and start its next incarnation; returns the dead one's server for the other gateway, to be stopped."""
    assert r.gateway.servers.for_gateways is not None
    server = r.gateway.servers.for_gateways
    await asyncio.to_thread(os.unlink, r.settings.http_sockets[0])  # a dead process accepts nothing
    for connection in server.connections:
        connection.transport.abort()
    await r.kill_gateway()
    await r.start_gateway(r.gateway.spawn_spec.incarnation + 1)
    return server
