"""What clients sent before they died is kept: with an answer unread, and between two stores, where another process holds the
listening socket as well.
"""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.packets import Change, Changes, Find, open_link, send_packet
from messages.descriptors.server import DescriptorServer, listen_at
from messages.descriptors.table import DescriptorTable
from tests.support.custody.descriptor_store import keys_at
from tests.support.waiting import DEADLINE_S, until


def copy_of(listener: socket.socket) -> socket.socket:
    """The listener as another process inherits it."""
    return socket.socket(fileno=os.dup(listener.fileno()))


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


async def test_what_a_client_has_sent_is_kept_if_it_dies_with_an_answer_unread(tmp_path: Path) -> None:
    path = tmp_path / "store"
    server = DescriptorServer(path, DescriptorTable(8))
    with open_link(path, DEADLINE_S) as link, socket.socketpair()[0] as kept:
        send_packet(link, Find("gateway/0"))
        await until(lambda: select.select([link], [], [], 0)[0])
        send_packet(link, Changes("gateway/0", [Change("k", b"", has_descriptor=True)]), [kept.fileno()])
    assert await keys_at(path) == ["k"]
    server.close()


async def test_a_held_listener_whose_file_was_replaced_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with listen_at(path) as held:
        listen_at(path).close()  # of a store that made the socket again after its file was removed, and died
        server = DescriptorServer(path, DescriptorTable(8), listener=copy_of(held))
        assert await keys_at(path) == []
        server.close()
