"""A listening socket that another process holds as well: what clients send between two stores waits for the next one."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.packets import Change, close_all
from messages.descriptors.server import DescriptorServer, listen_at
from messages.descriptors.table import DescriptorTable
from tests.support.waiting import DEADLINE_S


def copy_of(listener: socket.socket) -> socket.socket:
    """The listener as another process inherits it."""
    return socket.socket(fileno=os.dup(listener.fileno()))


async def keys_at(path: Path) -> list[str]:
    client = AsyncDescriptorClient(path)
    found = await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S)
    close_all([one.descriptor for one in found])
    client.close()
    return [one.key for one in found]


async def test_what_a_client_has_sent_between_two_stores_is_found_after_its_death(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with listen_at(path) as held:
        DescriptorServer(path, DescriptorTable(64), listener=copy_of(held)).close()
        client = AsyncDescriptorClient(path)
        with socket.socketpair()[0] as kept:
            changes = [(Change(str(nth), b"", has_descriptor=True), kept.fileno()) for nth in range(40)]
            client.tell("gateway/0", changes)
        client.close()
        server = DescriptorServer(path, DescriptorTable(64), listener=copy_of(held))
        assert sorted(await keys_at(path), key=int) == [str(nth) for nth in range(40)]
        server.close()


async def test_a_held_listener_whose_file_was_replaced_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with listen_at(path) as held:
        listen_at(path).close()  # of a store that made the socket again after its file was removed, and died
        server = DescriptorServer(path, DescriptorTable(8), listener=copy_of(held))
        assert await keys_at(path) == []
        server.close()
