"""The descriptors that the parent keeps for the next supervisor. Only the standard library is imported here, because the parent
imports this file."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from supervisor.parent.link import KEEP


class KeptDescriptors:
    """One descriptor by name, with the text of its Keep packet: `NAME VALUE`."""

    def __init__(self) -> None:
        self._by_name: dict[bytes, tuple[bytes, int]] = {}

    @property
    def fds(self) -> list[int]:
        """All of them."""
        return [fd for _, fd in self._by_name.values()]

    @property
    def by_text(self) -> dict[str, int]:
        """The descriptors by the text of their packets, for the program that is executed in place."""
        return {text.decode(): fd for text, fd in self._by_name.values()}

    def keep(self, text: bytes, fd: int) -> None:
        """Takes the place of what was kept under the same name, which is closed: its value may have been another one."""
        name = text.partition(b" ")[0]
        if (known := self._by_name.pop(name, None)) is not None:
            os.close(known[1])
        self._by_name[name] = text, fd

    def restore(self, by_text: Mapping[str, int]) -> None:
        """Keep what the parent before has kept, in its order."""
        for text, fd in by_text.items():
            self.keep(text.encode(), fd)

    def send(self, end: socket.socket) -> None:
        """Give a duplicate of each to the process at the other end. Raises: OSError."""
        for text, fd in self._by_name.values():
            socket.send_fds(end, [KEEP + text], [fd])
