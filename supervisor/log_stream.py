"""Standard error as a text stream that waits for no reader: a log that nobody reads must not stop a server.

All processes of a server write to one pipe or terminal. Where its reader lives but does not read (`less`, Ctrl-S, a collector
of logs that hangs), a plain write waits as long as the reader likes, and with it the event loop of each process that has a line
to say. Here a line that finds no room waits for a tenth of a second at most, and then it is lost and counted.

Only the standard library is imported here, because the supervisor's parent imports this file.
"""

from __future__ import annotations

import io
import os
import select
import stat
import threading
import time
from collections.abc import Callable

_PATIENCE_S = 0.1  # for which writers wait in all until the reader has been well for `_WELL_S`
_WELL_S = 10.0
_PIECE_BYTES = select.PIPE_BUF  # fits wherever `poll` says that there is room


class LogStream(io.TextIOBase):
    """Writes to descriptor `fd`. `lost_text(n)`: what to write where n lines were lost, as soon as there is room again.

    Files on a disk are written as ever: they take each line at once, or refuse it. Errors are raised as OSError, as ever.
    """

    encoding = "utf-8"  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]  # who prints asks for it

    def __init__(
        self, fd: int, lost_text: Callable[[int], str] = "[{} lines were lost: nobody has read them]\n".format
    ) -> None:
        self._fd, self._lost_text = fd, lost_text
        self._own_fd = _that_never_blocks(fd)
        self._piece_bytes = 0 if self._own_fd >= 0 or stat.S_ISREG(os.fstat(fd).st_mode) else _PIECE_BYTES
        self._lock = threading.Lock()
        self._rest = b""  # of a text of which the reader has taken a part
        self._n_lost = 0
        self._patience_s, self._waited_s = _PATIENCE_S, 0.0

    def write(self, text: str) -> int:
        """Write `text`, or lose it when there is no room. Raises: OSError; TypeError for bytes, by which click finds out that
        this is a stream of text."""
        if not isinstance(text, str):
            raise TypeError(f"text: expected str, got {type(text).__name__}")
        with self._lock:
            self._rest = self._put(self._rest)
            lost_text = self._lost_text(self._n_lost) if self._n_lost else ""
            data = f"{lost_text}{text}".encode(errors="backslashreplace")
            rest = data if self._rest else self._put(data)
            if len(rest) == len(data):
                self._n_lost += text.count("\n")
            else:
                self._rest, self._n_lost = rest, 0
        return len(text)

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """True for a terminal."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Close what this object has opened; `fd` stays open."""
        if self._own_fd >= 0:
            os.close(self._own_fd)
            self._own_fd = -1
        super().close()

    def _put(self, data: bytes) -> bytes:
        """Write as much as there is room for. Returns the rest."""
        while data:
            try:
                if self._piece_bytes and not self._has_room(0.0):
                    raise BlockingIOError
                piece = data[: self._piece_bytes] if self._piece_bytes else data
                data = data[os.write(self._own_fd if self._own_fd >= 0 else self._fd, piece) :]
            except BlockingIOError:
                if not self._wait():
                    break
        return data

    def _wait(self) -> bool:
        """Wait for room. Returns False when there is no patience left."""
        began_s = time.monotonic()
        if began_s - self._waited_s > _WELL_S:
            self._patience_s = _PATIENCE_S
        if self._patience_s <= 0:
            return False
        has_room = self._has_room(self._patience_s)
        self._waited_s = time.monotonic()
        self._patience_s -= self._waited_s - began_s
        return has_room

    def _has_room(self, timeout_s: float) -> bool:
        look = select.poll()
        look.register(self._fd, select.POLLOUT)
        return bool(look.poll(timeout_s * 1e3))


def _that_never_blocks(fd: int) -> int:
    """A descriptor of the same pipe or terminal that never blocks; -1 where there can be none. The flag of `fd` itself stays as
    it is, because other programs, such as the shell, share it."""
    kind = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)):
        return -1
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # it belongs to another user, or nobody reads it any more
        return -1
