"""The part of the kernel that a simulation needs: whose descriptors are whose, and which process ids are dead.

All simulated processes live in one real one. So each descriptor is noted for the process that has made or received it, and is
closed at that process's death, as the kernel does. Sockets are real unix sockets.
"""

from __future__ import annotations

import array
import errno
import os
import random
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from messages.descriptors.table import DescriptorTable
from tests.support.simulation.edges import Edges
from tests.support.simulation.virtual_loop import PROCESS, SimulatedLife, VirtualLoop

_open, _close, _dup, _memfd, _real_socket = os.open, os.close, os.dup, os.memfd_create, socket.socket
_real_pid = os.getpid
_RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)


class Kernel:
    """Stands for the kernel below all simulated processes. `patch(object, name, value)` must undo itself after the
    simulation."""

    def __init__(self, loop: VirtualLoop, edges: Edges, patch: Callable[[Any, str, Any], None]) -> None:
        self._loop, self.edges = loop, edges
        self._owner: dict[int, tuple[SimulatedLife | None, tuple[int, int]]] = {}
        self._sockets: dict[int, WeakSet[Any]] = {}
        self._pid_of: dict[int, int] = {}  # by the descriptor that watches it
        self._death_by_pid: dict[int, list[int]] = {}  # a pipe whose other end is closed at the death of the process
        self.kill: Callable[[int], None] = lambda pid: None  # SIGKILL to a process id
        patch(socket, "socket", _socket_class(self))
        patch(os, "close", self.close)
        patch(DescriptorTable.__init__, "__defaults__", (self.close,))  # which is the real close, bound long before
        patch(os, "open", lambda *args, **options: self.own(_open(*args, **options)))
        patch(os, "dup", lambda fd: self.own(_dup(fd)))
        patch(os, "memfd_create", lambda *args: self.own(_memfd(*args)))
        patch(os, "getpid", lambda: getattr(PROCESS.get(), "pid", 0) or _real_pid())
        patch(signal, "pthread_sigmask", lambda how, signals: set())
        patch(os, "pidfd_open", self._pidfd_open)
        patch(signal, "pidfd_send_signal", self._pidfd_send_signal)

    # -- descriptors ----------------------------------------------------------------------------------------------

    def own(self, fd: int, life: SimulatedLife | None = None, *, is_new: bool = True) -> int:
        """This descriptor belongs to the process that calls this (or to `life`). `is_new` False: unless it has an owner."""
        found = os.fstat(fd)
        identity = (found.st_dev, found.st_ino)
        known = self._owner.get(fd)
        if is_new or known is None or known[1] != identity:
            self._owner[fd] = (life or PROCESS.get(), identity)
        return fd

    def disown(self, fd: int) -> None:
        """It is being closed."""
        self._owner.pop(fd, None)
        self._sockets.pop(fd, None)

    def close(self, fd: int) -> None:
        """As `os.close`."""
        self.disown(fd)
        _close(fd)

    def give(self, fd: int, life: SimulatedLife) -> int:
        """A duplicate for another process."""
        return self.own(_dup(fd), life)

    def close_all_of(self, life: SimulatedLife | None) -> None:
        """A process has died: close what it had open."""
        for fd in [fd for fd, (owner, _) in self._owner.items() if owner is life]:
            _, identity = self._owner.pop(fd)
            with suppress(OSError):
                found = os.fstat(fd)
                if (found.st_dev, found.st_ino) != identity:
                    continue  # closed long ago, and used again by something else
                if fd in self._loop.selector.get_map():
                    self._loop.selector.unregister(fd)
                for one in list(self._sockets.pop(fd, ())):
                    if one.fileno() == fd:
                        one.detach()
                self._loop._transports.pop(fd, None)  # type: ignore[attr-defined]
                _close(fd)

    def forget_all(self) -> None:
        """The simulation is over."""
        for life in {owner for owner, _ in self._owner.values()}:
            self.close_all_of(life)
        for fds in self._death_by_pid.values():
            for fd in fds:
                _close(fd)

    # -- processes ------------------------------------------------------------------------------------------------

    def started(self, pid: int) -> None:
        """A process exists from now on."""
        self._death_by_pid[pid] = list(os.pipe())

    def died(self, pid: int) -> None:
        """Its death can be proven from now on."""
        _close(self._death_by_pid[pid].pop())

    def is_proven(self, pid: int) -> bool:
        """Its death is proven, or there was never such a process."""
        return len(self._death_by_pid.get(pid, ())) < 2

    def _pidfd_open(self, pid: int, flags: int = 0) -> int:
        if pid not in self._death_by_pid:
            raise ProcessLookupError(errno.ESRCH, "no such process")
        pidfd = self.own(_dup(self._death_by_pid[pid][0]))
        self._pid_of[pidfd] = pid
        return pidfd

    def _pidfd_send_signal(self, pidfd: int, number: int) -> None:
        self.kill(self._pid_of[pidfd])


def _socket_class(kernel: Kernel) -> type[Any]:
    class SimulatedSocket(_real_socket):
        """A socket that is noted for its process."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            kernel._sockets.setdefault(self.fileno(), WeakSet()).add(self)
            kernel.own(self.fileno(), is_new=options.get("fileno") is None and len(args) < 4)

        def _real_close(self, *args: Any) -> None:
            kernel.disown(self.fileno())
            super()._real_close(*args)  # type: ignore[misc]

        def detach(self) -> int:
            kernel._sockets.get(self.fileno(), WeakSet()).discard(self)
            return super().detach()

        def send(self, *args: Any) -> int:
            with kernel.edges.around("writes a connection"):
                return super().send(*args)

        def sendmsg(self, *args: Any) -> int:
            with kernel.edges.around("gives a descriptor"):
                return super().sendmsg(*args)

        def recvmsg(self, *args: Any) -> Any:
            received = super().recvmsg(*args)
            for level, kind, content in received[1]:
                if (level, kind) == _RIGHTS:
                    for fd in array.array("i", content[: len(content) - len(content) % 4]):
                        kernel.own(fd)
            return received

    return SimulatedSocket


def make_secrets_repeatable(patch: Callable[[Any, str, Any], None], seed: int) -> None:
    """Random numbers of the operating system come from the seed."""
    chance = random.Random(f"secrets {seed}")
    patch(secrets, "token_bytes", lambda n=32: chance.randbytes(n))
    patch(secrets, "token_hex", lambda n=32: chance.randbytes(n).hex())
    patch(secrets, "randbits", chance.getrandbits)
    patch(secrets, "choice", chance.choice)
