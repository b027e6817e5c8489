"""How much of an answer the client's machine has not confirmed yet."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array


def n_in_kernel(transport: asyncio.BaseTransport) -> int:
    """Bytes that the kernel has not sent or the client's machine has not confirmed; 0 where the system cannot say."""
    count = array("i", [0])
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
    except (OSError, ValueError, AttributeError):
        return 0
    return count[0]
