"""A real server under a stand-in for systemd: the socket outlives servers, and the manager hears what they do."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.support.service_manager.stand_in import DEADLINE_S, ServiceManager

pytestmark = pytest.mark.slow


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceManager]:
    one = ServiceManager(tmp_path_factory.mktemp("m"))  # a short path, because sockets lie below it
    try:
        yield one
    finally:
        one.close()


def asked(manager: ServiceManager) -> socket.socket:
    """A connection that has asked whether the server is ready; nobody needs to accept it yet."""
    connection = socket.create_connection(("127.0.0.1", manager.port), timeout=DEADLINE_S)
    connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return connection


def answered(connection: socket.socket) -> bytes:
    """The first line of the answer."""
    with connection, connection.makefile("rb") as answer:
        return answer.readline().strip()


def test_connections_wait_for_the_next_server_and_the_manager_hears_of_each_step(manager: ServiceManager) -> None:
    before = asked(manager)
    first = manager.start()
    manager.wait_for("READY=1")
    assert answered(before).startswith(b"HTTP/1.1 ")
    manager.wait_for("WATCHDOG=1")
    manager.stop()
    manager.wait_for("STOPPING=1")
    assert first.wait(DEADLINE_S) == 0

    between = asked(manager)
    manager.start()
    manager.wait_for("READY=1")
    assert answered(between).startswith(b"HTTP/1.1 ")


def test_a_server_whose_main_process_was_killed_names_the_next_one(manager: ServiceManager) -> None:
    first = manager.start()
    manager.wait_for("READY=1")
    first.kill()
    said = manager.wait_for("MAINPID=")
    first.wait(DEADLINE_S)
    assert answered(asked(manager)).startswith(b"HTTP/1.1 200")
    os.kill(int(said.partition("=")[2]), signal.SIGTERM)
    manager.wait_for("STOPPING=1")
