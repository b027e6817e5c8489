"""The steps before the first child: the listening socket."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.gateway.settings import GatewaySettings
from messages.errors import ConfigError
from supervisor import listener as listening
from supervisor import start
from supervisor.config.server_config import ServerConfig
from supervisor.directories.run_dir import RunDir
from supervisor.directories.run_dir_files import read_pid
from supervisor.listener import Protection, check_address, check_exposure, check_zeromq_ports, is_loopback, listen
from supervisor.placement.placement import Placement


def test_the_listener_takes_connections_before_any_gateway_lives() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=60.0) as client:
        client.sendall(b"waits in the queue")
        listener.settimeout(60.0)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(100) == b"waits in the queue"


def test_it_listens_on_ipv6_too() -> None:
    try:
        listener = listen("::1", 0)
    except ConfigError:
        pytest.skip("no IPv6 on this host")
    with listener:
        assert listener.family == socket.AF_INET6


def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^host: expected an address of this host, got no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(ConfigError, match=r"^host: expected an address of this host, got 203\.0\.113\.1$"):
        listen("203.0.113.1", 0)


def test_the_port_of_a_predecessor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its killed gateways hold the socket until they are dead."""
    predecessor = listen("127.0.0.1", 0)
    port = predecessor.getsockname()[1]
    monkeypatch.setattr(listening.time, "sleep", lambda seconds: predecessor.close())
    with listen("127.0.0.1", port) as listener:
        assert listener.getsockname()[1] == port


def test_a_refused_address_leaves_no_sign_of_a_server_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start would take it for a server that was killed."""
    monkeypatch.setattr(start, "configure_logs", lambda *_: None)
    config = ServerConfig(model="hash-chain", host="203.0.113.1", run_dir=str(tmp_path / "r"))
    with pytest.raises(ConfigError, match=r"^host: "):
        start.start(config, Placement("cpu", (), 1, 1, ""))
    assert read_pid(tmp_path / "r") is None


def test_a_start_that_is_refused_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the run directory may belong to a server that runs."""
    monkeypatch.setattr(start, "configure_logs", lambda *_: None)
    monkeypatch.setattr(listening, "_PREDECESSOR_S", 0.0)
    run_dir = tmp_path / "r"
    run_dir.mkdir(mode=0o700)
    names = ["children.json", "server.json", "supervisor.pid", "parent.pid", "served", "supervisor.json"]
    for name in names:
        (run_dir / name).write_text("{}")
    with listen("127.0.0.1", 0) as other:
        config = ServerConfig(model="hash-chain", port=other.getsockname()[1], run_dir=str(run_dir))
        with pytest.raises(ConfigError, match=r"^port: .* another process uses"):
            start.start(config, Placement("cpu", (), 1, 1, ""))
    assert {entry.name for entry in run_dir.iterdir()} == {*names, "lock"}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EADDRINUSE, "port: expected one that is free on h (0 takes any), got 80, which another process uses"),
        (errno.EACCES, "port: expected one that this user may listen on (1024 or more), got 80"),
        (errno.EADDRNOTAVAIL, "host: expected an address of this host, got h"),
        (errno.EINVAL, "port: expected one that can be listened on, got h:80 (Invalid argument)"),
    ],
)
def test_an_address_that_cannot_be_used_names_the_key(monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def refuse(listener: socket.socket, address: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(listening, "_bind", refuse)
    monkeypatch.setattr(
        listening.socket, "getaddrinfo", lambda *args, **kwargs: [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ())]
    )
    with pytest.raises(ConfigError) as caught:
        listen("h", 80)
    assert str(caught.value) == said


def test_a_port_for_zeromq_clients_that_another_process_uses_is_named() -> None:
    with listen("127.0.0.1", 0) as other:
        used = other.getsockname()[1]
        said = rf"^zeromq_port: expected one that is free on 127.0.0.1, got {used}, which another process uses$"
        with pytest.raises(ConfigError, match=said):
            check_zeromq_ports("127.0.0.1", used - 1, 2)
    check_zeromq_ports("127.0.0.1", used, 1)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(
        ConfigError, match=r"^run_dir: expected a directory with room for files, got .* \(No space left on device\)$"
    ):
        RunDir.acquire(tmp_path / "r")


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("0.0.0.0", False), ("fe80::1%eth0", False)]
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


EVERYBODY, READERS = "everybody who reaches it can use the server", "keys and answers can be read on the way"


@pytest.mark.parametrize(
    ("gateway", "top", "dangers"),
    [
        ({}, {}, f"{EVERYBODY} and {READERS}"),
        ({}, {"api_keys": True}, READERS),
        ({"tls_cert": "c", "tls_key": "k"}, {}, EVERYBODY),
        ({"tls_cert": "c", "tls_key": "k"}, {"api_keys": True}, ""),
        ({"tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"}, {}, ""),
    ],
)
def test_other_machines_may_connect_where_nobody_can_use_or_read_or_the_operator_says_so(
    gateway: dict[str, Any], top: dict[str, Any], dangers: str
) -> None:
    config = ServerConfig(gateway=GatewaySettings(**gateway), **top)
    protection = Protection.of(config)
    assert protection.dangers == dangers
    check_exposure("127.0.0.1", protection)
    if dangers:
        flags = "--api-keys .*--tls-cert .*--tls-key .*--insecure"
        what = rf"^host: .* loopback interface.* got 0\.0\.0\.0, where {dangers}\. Say {flags}"
        with pytest.raises(ConfigError, match=what):
            check_exposure("0.0.0.0", protection)
        with pytest.raises(ConfigError, match=what):
            check_address("0.0.0.0", 0, protection)
    else:
        check_exposure("0.0.0.0", protection)
    check_exposure("0.0.0.0", Protection.of(msgspec.structs.replace(config, insecure=True)))
