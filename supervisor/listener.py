"""The HTTP socket of all gateways: made by the supervisor, which names host or port when it cannot listen. And whether gateways
can listen for ZeroMQ clients."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from typing import Any

from messages.errors import ConfigError

_BACKLOG = 1024
_PREDECESSOR_S = 0.5  # time for the children of a killed server to die and so release its port


def listen(host: str, port: int) -> socket.socket:
    """The HTTP socket of all gateways, listening. The supervisor holds it, so connections wait in its queue while a gateway
    restarts.

    Raises: ConfigError naming host and port.
    """
    listener, address = _unbound(host, port)
    try:
        _bind(listener, address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(_not_bound(host, port, error)) from None
    listener.setblocking(False)
    return listener


def check_zeromq_ports(host: str, first: int, n: int) -> None:
    """Check `n` ports by binding them for a moment: each gateway binds its own. Raises: ConfigError if one is in use."""
    for port in range(first, first + n):
        probe, address = _unbound(host, port)
        with probe:
            try:
                _bind(probe, address)
            except OSError as error:
                raise ConfigError(_not_bound(host, port, error, "zeromq_port")) from None


def check_address(host: str, port: int, *, has_keys: bool = False, is_insecure: bool = False) -> None:
    """Check a host and a port by binding them for a moment; a port in use is right. `has_keys`, `is_insecure`: as for
    `check_exposure`.

    Raises: ConfigError if `listen` could not listen here even if nobody else did.
    """
    probe, address = _unbound(host, port)
    with probe:
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # the server of this configuration may be running
                raise ConfigError(_not_bound(host, port, error)) from None
    check_exposure(address[0], has_keys=has_keys, is_insecure=is_insecure)


def _unbound(host: str, port: int) -> tuple[socket.socket, Any]:
    """A socket for this address, and the address as it is bound to. Raises: ConfigError if the name has no address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        unbound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host: expected an address of this host, got {host} ({error.strerror})") from None
    unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return unbound, address


def check_exposure(host: str, *, has_keys: bool, is_insecure: bool) -> None:
    """Check that nobody from another machine can use the server without a key, unless the operator wants that. `host`: the IP
    address that HTTP listens on. Raises: ConfigError."""
    if not (has_keys or is_insecure or is_loopback(host)):
        raise ConfigError(
            f"host: expected an address of the loopback interface, such as 127.0.0.1, got {host}: everybody who reaches it"
            " could use the server. Ask for keys with --api-keys, or say --insecure"
        )


def is_loopback(host: str) -> bool:
    """True if only processes of this machine can reach this address."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _not_bound(host: str, port: int, error: OSError, key: str = "port") -> str:
    """The error text for an address on which this process cannot listen. It names the key to change; `key`: of the port."""
    match error.errno:
        case errno.EADDRNOTAVAIL:
            return f"host: expected an address of this host, got {host}"
        case errno.EADDRINUSE:
            any_port = " (0 takes any)" if key == "port" else ""
            return f"{key}: expected one that is free on {host}{any_port}, got {port}, which another process uses"
        case errno.EACCES:
            return f"{key}: expected one that this user may listen on (1024 or more), got {port}"
    return f"{key}: expected one that can be listened on, got {host}:{port} ({error.strerror})"


def _bind(listener: socket.socket, address: Any) -> None:
    """Bind; retry a used address for half a second, because the children of a killed server hold its socket until they die.

    Raises: OSError.
    """
    end_s = time.monotonic() + _PREDECESSOR_S
    while True:
        try:
            listener.bind(address)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end_s:
                raise
        time.sleep(0.02)
