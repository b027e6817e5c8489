"""Spares that outlive their supervisor: the parent keeps their standard inputs for the next supervisor.

A spare that a dead supervisor has made waits on, and becomes the next incarnation of its child as soon as the next supervisor
needs it. It has inherited its descriptors from the supervisor that made it, so their numbers are kept too.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping

from supervisor.children.adopted_process import AdoptedProcess
from supervisor.children.process import LocalProcess, OnExit, has_said_warm
from supervisor.directories.register import Registered
from supervisor.parent.link import Exits, ParentLink

_PREFIX = "spare:"  # of the name under which the parent keeps a standard input


class AdoptedSpare(AdoptedProcess):
    """A spare that an earlier supervisor has made. `stdin`: our end of its standard input. `descriptors`: those that it has
    inherited, by name."""

    def __init__(
        self, registered: Registered, exits: Exits, on_exit: OnExit, stdin: socket.socket, descriptors: Mapping[str, int]
    ) -> None:
        super().__init__(registered, exits, on_exit)
        self._stdin, self.descriptors = stdin, descriptors

    @property
    def is_warm(self) -> bool:
        """True once it has done its warm-ups. A supervisor of the release before takes away what a spare says, so its spares
        are never warm here: actors are forked instead, and ranks take them as they are."""
        return has_said_warm(self._stdin)

    def send_spawn_spec(self, spawn_spec: bytes) -> None:
        with contextlib.suppress(OSError):  # it died already: its pidfd will report it
            self._stdin.sendall(spawn_spec)
            self._stdin.shutdown(socket.SHUT_WR)
        self._stdin.close()


def has_kept_spares(link: ParentLink) -> bool:
    """True if the parent keeps a spare of some child."""
    return any(name.startswith(_PREFIX) for name in link.kept)


class KeptSpares:
    """The standard inputs of the present spares, which the parent of the supervisor keeps. `link`: the parent."""

    def __init__(self, link: ParentLink) -> None:
        self._link = link

    def keep(self, name: str, process: LocalProcess, descriptors: Mapping[str, int]) -> None:
        """This process is the spare of the child with this name now."""
        value = json.dumps([process.pid, dict(descriptors)])
        with contextlib.suppress(OSError):  # no descriptor is left, or the parent reads nothing: it dies with this supervisor
            known = self._link.kept.get(_PREFIX + name)
            self._link.keep(_PREFIX + name, value, os.dup(process.stdin_fd))
            if known is not None:
                os.close(known.fd)

    def of(self, registered: Registered, exits: Exits, on_exit: OnExit) -> AdoptedSpare | None:
        """The spare that this process is; None if it has ended, or if nobody has kept its standard input. Raises: OSError."""
        kept = self._link.kept.get(_PREFIX + registered.name)
        if kept is None or registered.is_gone:
            return None
        pid, descriptors = json.loads(kept.value)
        if pid != registered.pid:
            return None
        return AdoptedSpare(registered, exits, on_exit, socket.socket(fileno=os.dup(kept.fd)), descriptors)
