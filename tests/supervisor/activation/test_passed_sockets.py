"""Sockets of a service manager: whose they are, and which ones HTTP can listen on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.errors import ConfigError
from supervisor.activation import passed_sockets
from supervisor.activation.listener_of import listener_of
from supervisor.activation.passed_sockets import PassedSocket, take_passed_sockets
from supervisor.config.server_config import ServerConfig


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def test_they_are_taken_once_and_programs_do_not_get_them(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_sockets, "_FIRST_FD", listener.fileno())
    os.set_inheritable(listener.fileno(), True)
    environment = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http", "HOME": "/"}
    assert take_passed_sockets(environment, 7) == (PassedSocket(listener.fileno(), "http"),)
    assert environment == {"HOME": "/"}
    assert not os.get_inheritable(listener.fileno())
    assert take_passed_sockets(environment, 7) == ()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_PID": "8", "LISTEN_FDS": "1"},  # another process's, which has not removed them
        {"LISTEN_PID": "7", "LISTEN_FDS": "many"},
        {"LISTEN_PID": "7"},
    ],
)
def test_what_is_for_another_process_is_not_taken(environment: dict[str, str]) -> None:
    assert take_passed_sockets(environment, 7) == ()
    assert environment == {}


def test_the_address_of_the_service_manager_counts(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with listener_of(ServerConfig(host="127.0.0.2", port=port), [PassedSocket(listener.fileno())]) as taken:
        assert taken.getsockname() == listener.getsockname()
        assert not taken.getblocking()
    with socket.create_connection(listener.getsockname(), timeout=60.0):
        pass  # the end of a server closes its duplicate alone


def test_without_one_the_supervisor_listens_itself() -> None:
    with listener_of(ServerConfig(host="127.0.0.1", port=0), ()) as made:
        assert made.getsockname()[0] == "127.0.0.1"


def test_another_port_than_that_of_the_configuration_is_named(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(ConfigError, match=rf"^port: expected {port}, which the socket of the service manager has, got 8000$"):
        listener_of(ServerConfig(port=8000), [PassedSocket(listener.fileno())])


def test_what_http_cannot_listen_on_is_refused(listener: socket.socket, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^LISTEN_FDS: expected one socket, .* got 2 \(http, metrics\)$"):
        listener_of(ServerConfig(), [PassedSocket(listener.fileno(), "http"), PassedSocket(listener.fileno(), "metrics")])
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        with socket.socket() as silent, (tmp_path / "file").open("wb") as file:
            for other in (unix, datagrams, silent):
                with pytest.raises(ConfigError, match=r"^LISTEN_FDS: expected a TCP socket that listens, .* got other \("):
                    listener_of(ServerConfig(), [PassedSocket(other.fileno(), "other")])
            with pytest.raises(ConfigError, match=r"^LISTEN_FDS: expected a socket as other, got "):
                listener_of(ServerConfig(), [PassedSocket(file.fileno(), "other")])
