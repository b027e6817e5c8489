"""Notifications to the service manager, if there is one, by systemd's sd_notify protocol."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1`, `WATCHDOG=1` or `STATUS=...`. Does nothing without $NOTIFY_SOCKET. Errors are ignored: a
    service manager that does not listen must not end the server."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), address)
