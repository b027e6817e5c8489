"""The steps before the first child: the listening socket."""

from __future__ import annotations

import socket

import pytest

from messages.errors import ConfigError
from supervisor import start
from supervisor.start import listen


def test_the_listener_takes_connections_before_any_gateway_lives() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5.0) as client:
        client.sendall(b"waits in the queue")


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
    with pytest.raises(ConfigError, match=r"^port: expected 203\.0\.113\.1:0 to be free"):
        listen("203.0.113.1", 0)


def test_the_port_of_a_predecessor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its killed gateways hold the socket until they are dead."""
    predecessor = listen("127.0.0.1", 0)
    port = predecessor.getsockname()[1]
    monkeypatch.setattr(start.time, "sleep", lambda seconds: predecessor.close())
    with listen("127.0.0.1", port) as listener:
        assert listener.getsockname()[1] == port
