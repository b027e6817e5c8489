"""On which sockets the processes of a server listen. From /proc."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

_TCP_LISTENS, _UDP_IS_BOUND = "0A", "07"
_UNIX_LISTENS = 0x10000


def listeners(pid: int) -> set[str]:
    """The listening sockets of a process: "tcp 127.0.0.1:8000", "unix /run/..." ("unix @..." for an abstract one), and its
    UDP sockets."""
    inodes = set()
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return set()
    for fd in descriptors:
        with suppress(FileNotFoundError):  # it was closed meanwhile
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
    found = set()
    for protocol, state in (("tcp", _TCP_LISTENS), ("udp", _UDP_IS_BOUND)):
        for name in (protocol, protocol + "6"):
            rows = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
            found |= {f"{protocol} {_address(row[1])}" for row in rows if row[3] == state and row[9] in inodes}
    unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return found | {f"unix {row[-1]}" for row in unix if int(row[3], 16) & _UNIX_LISTENS and row[6] in inodes}


def _address(raw: str) -> str:
    """An address of /proc/net in the usual notation."""
    host, _, port = raw.partition(":")
    words = bytes.fromhex(host)
    host_bytes = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    family = socket.AF_INET if len(host_bytes) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, host_bytes)}:{int(port, 16)}"
