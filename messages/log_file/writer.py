"""Writes lines to the log file on a thread of its own: a disk that hangs must not stop an actor.

A kill loses the lines that the thread has not written yet, which are those of less than a millisecond on a disk that works.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence

from messages.log_file.rotated_file import RotatedFile

_MOST_WAITING_BYTES = 1 << 20  # further lines are lost and counted
_MOST_WRITE_BYTES = 1 << 16
FLUSH_S = 0.5  # for which a process that ends waits for its last lines


class LogWriter:
    """Lines of this process for `file`. `lost_line(n)`: the line to write where n lines were lost."""

    def __init__(self, file: RotatedFile, lost_line: Callable[[int], bytes]) -> None:
        self._file, self._lost_line = file, lost_line
        self._lock, self._has_lines, self._is_idle = threading.Lock(), threading.Event(), threading.Event()
        self._lines: list[bytes] = []
        self._n_bytes = self._n_lost = 0
        self._is_running = False
        self._is_idle.set()

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines, which have no newlines yet, soon."""
        n_bytes = sum(map(len, lines))
        with self._lock:
            if self._n_bytes + n_bytes > _MOST_WAITING_BYTES:
                self._n_lost += len(lines)
                return
            self._lines += lines
            self._n_bytes += n_bytes
            self._is_idle.clear()
            if not self._is_running:
                self._is_running = True
                self._start()
        self._has_lines.set()

    def flush(self, deadline_s: float = FLUSH_S) -> None:
        """Wait until the file has all lines, but no longer than `deadline_s` seconds."""
        self._is_idle.wait(deadline_s)

    def _start(self) -> None:
        """Start the thread. No signal is for it: the main thread, or the program that follows it, has to get each."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._run, name="log file", daemon=True).start()
        except RuntimeError:  # no memory for a thread: the next line tries again
            self._is_running = False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _run(self) -> None:
        while True:
            self._has_lines.wait()
            self._has_lines.clear()
            with self._lock:
                lines, self._lines, self._n_bytes = self._lines, [], 0
                n_lost, self._n_lost = self._n_lost, 0
            n_refused = n_lost if n_lost and self._put([self._lost_line(n_lost)]) else 0
            n_refused += self._put(lines)
            with self._lock:
                self._n_lost += n_refused
                if not self._lines:
                    self._is_idle.set()

    def _put(self, lines: list[bytes]) -> int:
        """Write lines. Returns how many of them the disk has refused."""
        n_refused, first, n_bytes = 0, 0, 0
        for index, line in enumerate(lines, 1):
            n_bytes += len(line)
            if n_bytes >= _MOST_WRITE_BYTES or index == len(lines):
                n_refused += 0 if self._has_put(lines[first:index]) else index - first
                first, n_bytes = index, 0
        return n_refused

    def _has_put(self, lines: list[bytes]) -> bool:
        try:
            return self._file.append(b"\n".join(lines) + b"\n")
        except OSError:  # a full disk, a directory that was removed: the next lines try again
            return False
