"""The HTTP socket of a server: the one that a service manager has passed, or one that the supervisor makes."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from messages.errors import ConfigError
from supervisor.activation.passed_sockets import PassedSocket
from supervisor.config.server_config import ServerConfig
from supervisor.listener import listen


def listener_of(config: ServerConfig, passed: Sequence[PassedSocket]) -> socket.socket:
    """The HTTP socket of all gateways, listening; the caller closes it. `passed`: by the service manager, whose address counts.

    Raises: ConfigError if it cannot listen, if other sockets than one of TCP were passed, or if it has another port than the
    configuration, by which commands find the server.
    """
    if not passed:
        return listen(config.host, config.port)
    if len(passed) > 1:
        names = ", ".join(one.name for one in passed)
        raise ConfigError(f"LISTEN_FDS: expected one socket, which HTTP listens on, got {len(passed)} ({names})")
    listener = _tcp_listener(passed[0])
    port = listener.getsockname()[1]
    if config.port not in (0, port):
        listener.close()
        raise ConfigError(f"port: expected {port}, which the socket of the service manager has, got {config.port}")
    listener.setblocking(False)
    return listener


def _tcp_listener(passed: PassedSocket) -> socket.socket:
    """A duplicate of this socket. Raises: ConfigError unless it is one of TCP that listens."""
    try:
        found = socket.socket(fileno=os.dup(passed.fd))
    except OSError as error:
        raise ConfigError(f"LISTEN_FDS: expected a socket as {passed.name}, got {error.strerror}") from None
    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
    if is_tcp and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return found
    kind, name = found.type.name if isinstance(found.type, socket.SocketKind) else found.type, passed.name
    found.close()
    raise ConfigError(f"LISTEN_FDS: expected a TCP socket that listens, such as ListenStream=8000, got {name} ({kind})")
