"""The HTTP socket of all gateways: made by the supervisor, which names host or port when it cannot listen. And whether gateways
can listen for ZeroMQ clients."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from dataclasses import dataclass
from typing import Any

from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig

_BACKLOG = 1024
_PREDECESSOR_S = 0.5  # time for the children of a killed server to die and so release its port


@dataclass(frozen=True)
class Protection:
    """What keeps strangers out where other machines can reach the server. `asks_who`: clients show an API key or a certificate.
    `has_tls`: nobody reads on the way. `is_insecure`: the operator has said that both may be missing."""

    asks_who: bool = False
    has_tls: bool = False
    is_insecure: bool = False

    @classmethod
    def of(cls, config: ServerConfig) -> Protection:
        """That of HTTP with this configuration."""
        gateway = config.gateway
        return cls(config.api_keys or bool(gateway.tls_client_ca), bool(gateway.tls_cert), config.insecure)

    @property
    def dangers(self) -> str:
        """What others can do to a server that they can reach; "" if nothing."""
        everybody = "" if self.asks_who else "everybody who reaches it can use the server"
        readers = "" if self.has_tls else "keys and answers can be read on the way"
        return " and ".join(filter(None, (everybody, readers)))


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


def check_address(host: str, port: int, protection: Protection) -> None:
    """Check a host and a port by binding them for a moment; a port in use is right.

    Raises: ConfigError if `listen` could not listen here even if nobody else did.
    """
    probe, address = _unbound(host, port)
    with probe:
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # the server of this configuration may be running
                raise ConfigError(_not_bound(host, port, error)) from None
    check_exposure(address[0], protection)


def _unbound(host: str, port: int) -> tuple[socket.socket, Any]:
    """A socket for this address, and the address as it is bound to. Raises: ConfigError if the name has no address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        unbound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host: expected an address of this host, got {host} ({error.strerror})") from None
    unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return unbound, address


def check_exposure(host: str, protection: Protection) -> None:
    """Check that nobody from another machine can use the server without a key, or read what clients send, unless the operator
    wants that. `host`: the IP address that HTTP listens on. Raises: ConfigError that names all flags."""
    if protection.dangers and not (protection.is_insecure or is_loopback(host)):
        raise ConfigError(
            f"host: expected an address of the loopback interface, such as 127.0.0.1, got {host}, where {protection.dangers}."
            " Say --api-keys (supervisor keys add makes them), --tls-cert FILE and --tls-key FILE; or say --insecure, where a"
            " proxy or a private network does this"
        )


def url_of(config: ServerConfig, host: str, port: int) -> str:
    """The URL of a server with this configuration that listens on this IP address."""
    return f"{'https' if config.gateway.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


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
