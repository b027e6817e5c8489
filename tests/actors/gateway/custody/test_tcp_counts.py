"""The kernel's counts of a TCP connection: every byte that was ever written or read, whoever did it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from actors.gateway.custody.tcp_counts import TcpCounts, tcp_counts


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        yield server, client


def test_bytes_in_any_buffer_are_counted_once(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = pair
    assert tcp_counts(server.fileno()) == TcpCounts(0, 0)
    server.setblocking(False)
    n_written, n_read = 0, 0
    try:
        while True:  # until the client's buffer and the server's are full: most of it is not confirmed
            n_written += server.send(bytes(100_000))
    except BlockingIOError:
        pass
    assert tcp_counts(server.fileno()) == TcpCounts(n_written, 0)
    while n_read < n_written:  # while the kernel sends, bytes move from one counter to the other
        n_read += len(client.recv(10_000))
        assert tcp_counts(server.fileno()) == TcpCounts(n_written, 0)


def test_only_bytes_that_a_process_has_read_count_as_read(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = pair
    client.sendall(b"request")
    assert server.recv(3) == b"req"
    assert tcp_counts(server.fileno()) == TcpCounts(0, 3)


def test_a_duplicate_knows_what_the_other_descriptor_has_written(pair: tuple[socket.socket, socket.socket]) -> None:
    server, _ = pair
    duplicate = os.dup(server.fileno())
    server.send(b"12345")
    server.close()
    assert tcp_counts(duplicate) == TcpCounts(5, 0)
    os.close(duplicate)


def test_what_is_no_tcp_connection_has_no_counts() -> None:
    read, write = os.pipe()
    assert tcp_counts(read) is None
    os.close(read)
    os.close(write)
    assert tcp_counts(read) is None
