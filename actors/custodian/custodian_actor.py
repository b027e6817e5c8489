"""The custodian actor: a descriptor store for client connections. It reads and writes none of them, and parses nothing."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from actors.actor import Actor, Handler
from actors.custodian.settings import CustodianSettings
from messages.descriptors.open_files import FILES_BESIDE_CONNECTIONS, most_open_files
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable
from messages.ids import role_of
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import CUSTODIAN_SOCKET, SpawnSpec
from messages.transport.mailbox import MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message


class CustodianActor(Actor):
    """Holds what gateways give it until they drop it, or until a dead gateway has not come back for `abandoned_s`."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        super().__init__(spawn_spec, make_mailbox)
        self._settings = msgspec.json.decode(spawn_spec.settings, type=CustodianSettings)
        self._server: DescriptorServer | None = None
        self._abandoned: dict[str, asyncio.TimerHandle] = {}  # dead gateways
        self._most_files = most_open_files()

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {}

    async def start(self) -> dict[str, str]:
        """Listen for gateways."""
        table = DescriptorTable(min(self._settings.max_sockets, max(most_open_files() - FILES_BESIDE_CONNECTIONS, 1)))
        inherited = self.spawn_spec.descriptors.get(CUSTODIAN_SOCKET)
        listener = None if inherited is None else socket.socket(fileno=inherited)
        self._server = DescriptorServer(Path(self._settings.socket_path), table, listener=listener)
        return {"sockets": str(table.max_entries)}

    async def stop(self) -> None:
        """Close everything that is held."""
        for timer in self._abandoned.values():
            timer.cancel()
        if self._server is not None:
            self._server.close()

    def peer_up(self, peer: lifecycle.Peer) -> None:
        if (timer := self._abandoned.pop(peer.name, None)) is not None:
            timer.cancel()

    def peer_down(self, name: str, incarnation: int) -> None:
        if role_of(name) == "gateway" and name not in self._abandoned:
            loop = asyncio.get_running_loop()
            self._abandoned[name] = loop.call_later(self._settings.abandoned_s, self._let_go, name)

    def tick(self) -> None:
        """If somebody has lowered the limit of this process so far that it can take no connection: end. The next custodian has
        the limit of the supervisor, and living gateways give it everything; so it waits until none is dead."""
        if self.files.is_short and most_open_files() < self._most_files and not self._abandoned:
            self.fail("files", OSError(errno.EMFILE, "the limit of open files was lowered"))

    def statistics(self) -> dict[str, float]:
        return {"sockets": 0 if self._server is None else len(self._server.table)}

    def _let_go(self, name: str) -> None:
        del self._abandoned[name]
        if self._server is not None:
            self._server.table.drop(name)


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of the custodian; returns the exit status."""
    return await CustodianActor(spawn_spec).run()
