"""How many bytes a TCP socket has sent and received, as the kernel counts them.

The kernel's counts outlive the process that wrote: a successor with a duplicate of the socket reads them and knows the exact
byte at which the dead process stopped (Linux: `tcpi_bytes_acked`, `SIOCOUTQ`; RFC 4898 has the counters).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from array import array
from dataclasses import dataclass

_INFO_BYTES = 256
_BYTES_ACKED = 120  # offsets of two unsigned 64-bit counters in the kernel's struct tcp_info
_BYTES_RECEIVED = 128
_READS = 16  # tries to read counters while they do not change


@dataclass(frozen=True, slots=True)
class TcpCounts:
    """`written_bytes`: all bytes that were ever written to the socket. `read_bytes`: all that were ever read from it."""

    written_bytes: int
    read_bytes: int


def tcp_counts(fd: int) -> TcpCounts | None:
    """The counts of a connected socket; None where the system does not count. `fd` stays open.

    Each count is made of two numbers that change together, so both are read until nothing has changed between the two reads.
    """
    try:
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fd)  # finding the real family takes four system calls
    except OSError:
        return None
    try:
        for _ in range(_READS):
            before = _counters(one)
            unconfirmed, unread = _queued(fd, termios.TIOCOUTQ), _queued(fd, termios.FIONREAD)
            if _counters(one) == before:
                acked, received = before
                return TcpCounts(acked + unconfirmed, received - unread)
    except (OSError, struct.error):
        return None
    finally:
        one.detach()
    return None


def _counters(one: socket.socket) -> tuple[int, int]:
    """(bytes that the peer's machine has confirmed, bytes received in order)."""
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    return struct.unpack_from("=Q", info, _BYTES_ACKED)[0], struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0]


def _queued(fd: int, which: int) -> int:
    """Bytes in one of the queues of a socket: TIOCOUTQ is what the peer has not confirmed, FIONREAD what was not read."""
    count = array("i", [0])
    fcntl.ioctl(fd, which, count)
    return count[0]
