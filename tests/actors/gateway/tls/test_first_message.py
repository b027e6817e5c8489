"""The first message of a TLS client, however it arrives; and handshakes that come at the same moment begin one by one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.connections.caller_connections import ConnectionPlace
from actors.gateway.tls.first_message import is_whole_in_one_record
from actors.gateway.tls.handshake import TlsDoor
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.metric_values import metric_value
from tests.support.tls.certificates import Authority, Signed
from tests.support.waiting import DEADLINE_S

N_AT_ONCE = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls(authority: Authority, tmp_path: Path) -> dict[str, Any]:
    files = Signed(tmp_path / "server.pem", tmp_path / "server.key")
    authority.signed(serial=1).install(files)
    return {"tls_cert": str(files.cert), "tls_key": str(files.key)}


class SlowClient:
    """A TLS client that sends what the test lets it send."""

    def __init__(self, r: Rig, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self.socket = socket.create_connection(r.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._step()

    @property
    def unsent(self) -> bytes:
        """What the client wants to send now."""
        return self._out.read()

    def _step(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def finish(self) -> None:
        """Complete the handshake."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            while not self._step():
                received = await loop.sock_recv(self.socket, 1 << 16)
                assert received, "the server has closed"
                self._in.write(received)
            await loop.sock_sendall(self.socket, self.unsent)


async def test_a_first_message_that_comes_in_pieces_is_waited_for(authority: Authority, tls: dict[str, Any]) -> None:
    async with rig(with_socket=True, **tls) as r:
        client = SlowClient(r, authority.trusting())
        hello = client.unsent
        for piece in (hello[:1], hello[1:7], hello[7:12], hello[12:-1]):
            client.socket.send(piece)
            await r.cluster.settle()
        client.socket.send(hello[-1:])
        await client.finish()


async def test_a_first_message_in_several_records_is_understood(authority: Authority, tls: dict[str, Any]) -> None:
    async with rig(with_socket=True, **tls) as r:
        client = SlowClient(r, authority.trusting())
        head, message = (whole := client.unsent)[:3], whole[5:]
        for part in (message[:40], message[40:]):
            client.socket.send(head + len(part).to_bytes(2) + part)
        await client.finish()


async def test_clients_that_leave_within_their_first_message_are_counted_and_forgotten(
    authority: Authority, tls: dict[str, Any]
) -> None:
    async with rig(with_socket=True, **tls) as r:
        for n_bytes in (0, 3, 20):
            client = SlowClient(r, authority.trusting())
            client.socket.send(client.unsent[:n_bytes])
            client.socket.close()
        await r.cluster.wait_until(lambda: metric_value(r.gateway.metrics.cut.labels("tls")) == 3)
        whole = SlowClient(r, authority.trusting())
        whole.socket.send(whole.unsent)
        await whole.finish()


@pytest.mark.parametrize("record", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff\x01\x00\x00\x00"])
async def test_what_is_no_tls_is_left_to_the_library(record: bytes) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.send(record)
    assert await is_whole_in_one_record(ours, DEADLINE_S)
    assert ours.recv(100) == record, "nothing was read"
    theirs.close()
    ours.close()


async def test_handshakes_that_come_at_the_same_moment_begin_in_turns_of_their_own(
    authority: Authority, tls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, begun = 0, list[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if len(begun) < N_AT_ONCE:
            asyncio.get_running_loop().call_soon(next_turn)

    connect = TlsDoor._connect

    async def noted(door: TlsDoor, client: socket.socket, place: ConnectionPlace | None, limit_s: float) -> None:
        begun.append(turn)
        await connect(door, client, place, limit_s)

    monkeypatch.setattr(TlsDoor, "_connect", noted)
    async with rig(with_socket=True, **tls) as r:
        clients = [SlowClient(r, authority.trusting()) for _ in range(N_AT_ONCE)]
        await r.cluster.settle()  # all are accepted
        next_turn()
        for client in clients:
            client.socket.send(client.unsent)
        for client in clients:
            await client.finish()
        assert len(set(begun)) == N_AT_ONCE, begun
