"""The connection between the supervisor and its parent: packets with at most one descriptor over a pair of Unix sockets.

    from the supervisor    `open`, as soon as it handles signals, and from then on as a sign of life; `keep NAME VALUE` with a
                           descriptor, for the next supervisor; `next`: make that one in advance; `fresh PID` with the
                           parent's end of a link: this one waits already, and has the program that is on disk now;
                           `spare PID` likewise, for one with the program of this supervisor
    from the parent        everything that is kept, then `exits`; later one `exits` for each process that the parent has reaped,
                           and `alive` for each sign of life

When the parent dies, the kernel closes its end. A parent that answers no sign of life is frozen.

Only the standard library is imported here, because the parent imports this file.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.parent.process_sample import sample_of
from supervisor.parent.silence import FROZEN_S, POLL_EVERY_S, Silence

if TYPE_CHECKING:
    import asyncio

KEEP = b"keep "
OPEN = b"open"
NEXT = b"next"
FRESH, SPARE = b"fresh ", b"spare "
ALIVE = b"alive"
PACKET_BYTES = 16_384
_ASK_EVERY_S = 2.0
_EXITS = b"exits"
_CREDENTIALS = struct.Struct("3i")  # process id, user id, group id


@dataclass(frozen=True)
class Kept:
    """One descriptor that the parent keeps, with a text, such as a path."""

    value: str
    fd: int


@dataclass(frozen=True)
class Successor:
    """The next supervisor, a child of this one that waits. `end`: the parent's end of its link."""

    pid: int
    end: socket.socket


def pack_exits(exits: Mapping[int, int]) -> bytes:
    """The packet for these return codes by process id; a negative code is a signal."""
    return b" ".join([_EXITS, *(f"{pid}:{code}".encode() for pid, code in exits.items())])


@dataclass
class Exits:
    """Return codes of processes that the parent has reaped. `on_exit(pid, code)` is called for each that comes later."""

    code_by_pid: dict[int, int] = field(default_factory=dict)
    on_exit: Callable[[int, int], None] = lambda pid, code: None

    def note(self, pid: int, code: int) -> None:
        """The parent has reaped this process: keep its return code and pass it on."""
        self.code_by_pid[pid] = code
        self.on_exit(pid, code)


class ParentLink:
    """The supervisor's end. Without a socket, in tests, it does nothing. `on_parent_death` is called once, from `read`;
    `on_parent_frozen` from `beat`, until the parent is dead. `parent_pid`: of the parent; by default it has made the link."""

    def __init__(self, end: socket.socket | None = None, parent_pid: int = 0) -> None:
        self._socket = end
        self._beat_s, self._asked_s = 0.0, time.monotonic()
        self.wants_next = False  # the parent shall make the next supervisor in advance
        self.kept: dict[str, Kept] = {}  # by name; from the parent, and `keep`
        self.successor: Successor | None = None  # that waits for this process to be the parent
        self.make_spare: Callable[[], Successor | None] = lambda: None  # a next supervisor, where that takes milliseconds
        self.exits = Exits()
        self.on_parent_death: Callable[[], None] = lambda: None
        self.on_parent_frozen: Callable[[], None] = lambda: None
        self._silence = Silence(lambda: sample_of(self._parent_pid))
        self._parent_pid = 0 if end is None else parent_pid or _creator_of(end)
        while end is not None:
            packet, fds, _, _ = socket.recv_fds(end, PACKET_BYTES, 1)
            if not packet.startswith(KEEP):
                self._note_exits(packet)
                break
            name, _, value = packet[len(KEEP) :].decode().partition(" ")
            self.kept[name] = Kept(value, fds[0])
        self.lacks_spare = bool(self.kept)  # the parent had one next supervisor at most, and that is this process

    @property
    def has_parent(self) -> bool:
        """True if a parent has started this supervisor. It stays true after the parent's death, because this process then takes
        the parent's place."""
        return self._socket is not None

    @property
    def parent_pid(self) -> int:
        """The process id of the parent; 0 if there is none, or if it is known to be dead."""
        return self._parent_pid

    @property
    def has_lost_parent(self) -> bool:
        """True from the death of the parent on, also before that is noticed."""
        if self._socket is None:
            return False
        look = select.poll()
        look.register(self._socket, 0)
        return any(events & select.POLLHUP for _, events in look.poll(0))

    def listen(self) -> None:
        """Take the exit statuses that the parent sends from now on, on the running event loop."""
        if self._socket is not None:
            _loop().add_reader(self._socket.fileno(), self.read)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            _loop().remove_reader(self._socket.fileno())

    def keep(self, name: str, value: str, fd: int) -> None:
        """Let the parent hold a duplicate of this descriptor for the next supervisor. `name` has no space in it."""
        self.kept[name] = Kept(value, fd)
        if self._socket is not None:
            socket.send_fds(self._socket, [KEEP + f"{name} {value}".encode()], [fd])

    def offer(self, fresh: Successor) -> None:
        """Let the parent take this one as the next supervisor, also in the program on disk. Raises: OSError."""
        self._give(FRESH, fresh)

    def _give(self, kind: bytes, waiting: Successor) -> None:
        assert self._socket is not None, "expected a parent"
        socket.send_fds(self._socket, [kind + str(waiting.pid).encode()], [waiting.end.fileno()])

    def give_spare(self, made: Successor) -> None:
        """Let the parent have a next supervisor at once: this one may die as soon as the one before. Closes its end here."""
        self.lacks_spare = False
        with made.end, contextlib.suppress(OSError):  # a parent that is stopped reads nothing; what was made ends
            self._give(SPARE, made)

    def beat(self) -> None:
        """Show the parent that this supervisor handles signals and messages, and notice a parent that does not answer. May be
        called often."""
        now_s = time.monotonic()
        if self.lacks_spare and self._beat_s and (made := self.make_spare()) is not None:  # what has to be done first is done
            self.give_spare(made)
        if self._socket is not None and now_s - self._beat_s >= POLL_EVERY_S:
            self._beat_s = now_s
            with contextlib.suppress(OSError):  # a parent that is stopped reads nothing
                self._socket.send(OPEN, socket.MSG_DONTWAIT)
                if self.wants_next and now_s - self._asked_s >= _ASK_EVERY_S:
                    self._asked_s, self.lacks_spare = now_s, False
                    self._socket.send(NEXT, socket.MSG_DONTWAIT)
            if self._parent_pid and self._silence.poll() > FROZEN_S:
                self.on_parent_frozen()

    def read(self) -> None:
        """Take what the parent has sent, and notice its death."""
        assert self._socket is not None
        while True:
            try:
                packet = self._socket.recv(PACKET_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it died before it had read everything; what it has sent is still to be read
                continue
            if not packet:
                break
            self._silence.heard()
            if packet != ALIVE:
                self._note_exits(packet)
        self.close()
        self._parent_pid = 0
        self.on_parent_death()

    def _note_exits(self, packet: bytes) -> None:
        for pair in packet.split()[1:]:
            pid, _, code = pair.partition(b":")
            self.exits.note(int(pid), int(code))


def _creator_of(end: socket.socket) -> int:
    """The process id of the process that has made this pair of sockets."""
    return _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]


def _loop() -> asyncio.AbstractEventLoop:
    """The running loop. The parent has none and needs no asyncio."""
    import asyncio

    return asyncio.get_running_loop()
