"""A socket on a loop: nothing is lost between its descriptor's edges, and a peer that does not read costs no turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from messages.transport import zmq_options
from messages.transport.zmq_reader import ZmqReader
from tests.support.waiting import next_turn, until

DEADLINE_S = 60.0


class CountingSocket(zmq.Socket):
    """Counts how often anybody asks for an option, such as EVENTS."""

    n_asked = 0

    def get(self, option: int) -> int | bytes:
        type(self).n_asked += 1
        return super().get(option)


class CountingContext(zmq.Context):
    _socket_class = CountingSocket


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


async def test_a_router_whose_peer_does_not_read_waits_without_turning_and_goes_on_when_it_reads(
    context: zmq.Context, tmp_path: Path
) -> None:
    endpoint, body = f"ipc://{tmp_path}/r", b"x" * 10_000
    heard: list[list[bytes]] = []
    n_told = 0

    def writable() -> None:
        nonlocal n_told, n_sent
        n_told += 1
        while n_sent < n_wanted and router.send([b"peer", body]):
            n_sent += 1

    n_sent = n_wanted = 0
    router = ZmqReader(zmq_options.inbox(context, endpoint), heard.append, writable)
    peer = zmq_options.outgoing(context, endpoint, b"peer")
    other = zmq_options.outgoing(context, endpoint, b"other")  # because of it the socket is always writable
    for one in (peer, other):
        await until(lambda one=one: _sent(one, b"hello"))
    await until(lambda: len(heard) == 2)
    n_wanted = 10_000  # more than pipes and kernel hold
    writable()
    assert n_sent < n_wanted
    await asyncio.sleep(0)
    n_told = 0
    for _ in range(1000):
        await asyncio.sleep(0)
    assert n_told < 100, "it turns in circles"
    n_read = 0
    async with asyncio.timeout(DEADLINE_S):
        while n_read < n_wanted:
            try:
                assert peer.recv(zmq.DONTWAIT) == body
                n_read += 1
            except zmq.Again:
                await next_turn()
    router.close()


async def test_what_arrives_during_a_burst_of_sends_is_heard(context: zmq.Context, tmp_path: Path) -> None:
    """Each send may swallow the descriptor's edge."""
    endpoint = f"ipc://{tmp_path}/r"
    heard: list[list[bytes]] = []
    router = ZmqReader(zmq_options.inbox(context, endpoint), heard.append, lambda: None)
    peer = zmq_options.outgoing(context, endpoint, b"peer")
    await until(lambda: _sent(peer, b"0"))
    await until(lambda: heard)
    for number in range(1, 300):
        peer.send(b"%d" % number)
        assert router.send([b"peer", b"a", b"b"])
        if number % 7 == 0:
            await until(lambda number=number: len(heard) == number + 1)
        assert peer.recv_multipart() == [b"a", b"b"]
    await until(lambda: len(heard) == 300)
    assert [frames[1] for frames in heard] == [b"%d" % number for number in range(300)]
    router.close()


def _sent(socket: zmq.Socket, frame: bytes) -> bool:
    try:
        socket.send(frame, zmq.DONTWAIT)
    except zmq.Again:
        return False
    return True


async def test_a_burst_is_sent_without_a_look_at_the_socket_and_received_with_one_for_each_message(tmp_path: Path) -> None:
    context, endpoint = CountingContext(), f"ipc://{tmp_path}/r"
    heard: list[list[bytes]] = []
    router = ZmqReader(zmq_options.inbox(context, endpoint), heard.append, lambda: None)
    answers: list[list[bytes]] = []
    peer = ZmqReader(zmq_options.outgoing(context, endpoint, b"peer"), answers.append, lambda: None)
    await until(lambda: peer.send([b"0", b""]))
    await until(lambda: heard)
    CountingSocket.n_asked = 0
    for number in range(1, 200):
        assert peer.send([b"%d" % number, b"body"])
        assert router.send([b"peer", b"answer"])
    assert CountingSocket.n_asked == 0
    await until(lambda: len(heard) == 200 and len(answers) == 199)
    assert [frames[1] for frames in heard] == [b"%d" % number for number in range(200)]
    assert CountingSocket.n_asked < 600  # of 399 messages with 2 or 3 frames
    router.close()
    peer.close()
    context.destroy(linger=0)


async def test_what_is_said_after_the_end_is_not_sent_and_no_error(context: zmq.Context, tmp_path: Path) -> None:
    reader = ZmqReader(zmq_options.inbox(context, f"ipc://{tmp_path}/r"), lambda frames: None, lambda: None)
    reader.close()
    assert not reader.send([b"peer", b"body"])


async def test_the_address_of_a_sender_is_told_where_it_is_wanted(context: zmq.Context, tmp_path: Path) -> None:
    endpoint, heard = f"ipc://{tmp_path}/r", list[tuple[bytes, str]]()
    socket = zmq_options.public_router(context, endpoint)
    socket.bind("tcp://127.0.0.1:*")
    tcp_endpoint = str(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    router = ZmqReader(
        socket, lambda frames: heard.append((frames[1], router.sender_address)), lambda: None, tells_addresses=True
    )
    for name, address in ((b"near", endpoint), (b"far", tcp_endpoint), (b"near again", endpoint)):
        peer = zmq_options.outgoing(context, address, name)
        await until(lambda peer=peer, name=name: _sent(peer, name))
        await until(lambda name=name: heard and heard[-1][0] == name)
    assert [name for name, _ in heard] == [b"near", b"far", b"near again"]
    assert heard[1][1] == "127.0.0.1"
    assert heard[0][1].startswith("localhost:")
    assert heard[2][1].startswith("localhost:")
    router.close()
