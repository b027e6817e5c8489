"""TCP connections, and a gateway's custody of them at a descriptor store."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from actors.gateway.custody.gateway_custody import GatewayCustody
from messages.descriptors.server import DescriptorServer
from tests.support.waiting import until


class Buffer:
    """A transport with bytes that are not written to the socket yet."""

    def get_write_buffer_size(self) -> int:
        return 7


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    return server, client


def custody(path: Path) -> GatewayCustody:
    """A gateway's custody that tries again at once."""
    loop = asyncio.get_running_loop()
    return GatewayCustody("gateway/0", path, lambda delay_s, call: loop.call_later(0.001, call))


async def wait_kept(server: DescriptorServer, n: int) -> None:
    await until(lambda: len(server.table) == n)
