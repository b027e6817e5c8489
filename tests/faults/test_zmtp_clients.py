"""Clients that speak ZMTP by themselves: whatever they send, and whenever they leave, the gateway lives."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from messages import public
from messages.client import Client
from messages.wire.codec import Codec
from tests.support.real_server import real_server

pytestmark = pytest.mark.timeout(600)

_GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" * 32
_COMMAND = 4  # flags of a ZMTP frame
_MORE = 1
N_CLIENTS = 300  # 170 were enough, and 1 at best, when libzmq stopped reading after 16 messages


def frame(flags: int, body: bytes) -> bytes:
    return bytes([flags, len(body)]) + body


def burst() -> bytes:
    """Many small messages, heartbeats, and messages again, as one piece."""
    head, arrays = Codec((public.Received,)).encode(public.Received(request="x", up_to=1))
    message = frame(_MORE, head) + frame(0, arrays)
    return message * 100 + frame(_COMMAND, b"\x04PING\0\0") * 3 + message * 3


def speak_and_leave(path: Path, data: bytes) -> None:
    """A handshake as a DEALER, then `data`, then the connection is closed with what came unread."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60.0)
        client.connect(str(path))
        client.sendall(_GREETING)
        received = b""
        while len(received) < 64:
            received += client.recv(256)
        client.sendall(frame(_COMMAND, b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"))
        while len(received) < 64 + 20:
            received += client.recv(256)
        client.sendall(data)


def test_clients_that_leave_with_heartbeats_unread_do_not_end_the_gateway() -> None:
    with real_server("--model", "hash-chain") as server:
        before = server.child("gateway/0")
        for _ in range(N_CLIENTS):
            speak_and_leave(server.run_dir / "zeromq-0", burst())
        with Client(server.zeromq) as client:
            assert len(client.generate("hello", max_tokens=8).tokens) == 8
        assert (server.child("gateway/0").pid, server.child("gateway/0").incarnation) == (before.pid, before.incarnation)
        assert "Assertion failed" not in server.log()
