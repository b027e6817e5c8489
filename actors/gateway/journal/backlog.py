"""Entries that the journal's disk has not recorded yet, in order, and whose callers may be answered from memory. Pure.

While the disk refuses writes, running requests continue: their entries are kept in memory, their callers are answered as if the
entries were recorded, and the entries are written when the disk works again. A new request is withdrawn instead, because it
must be recorded before it is accepted. When the kept entries reach a limit in bytes, callers wait for the disk. Schedulers then
get no acknowledgements and pause the sequences of this gateway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from actors.gateway.journal.frames import Kind

_ENTRY_BYTES = 200  # memory of an entry without its payload

Callback = Callable[[], None]


class PendingFrame(NamedTuple):
    """One frame to be written. `done` is called when it is recorded, or kept in memory while the disk refuses writes.

    `kind` None: nothing is written. `withdrawn`: if given, the entry is dropped when the disk refuses writes, and `withdrawn`
    is called instead of `done`. `obsolete`: a folder that is deleted when all entries up to this one are recorded.
    """

    kind: Kind | None
    number: int = 0
    payload: bytes = b""
    done: Callback | None = None
    withdrawn: Callback | None = None
    obsolete: Path | None = None

    @property
    def n_bytes(self) -> int:
        """Approximate memory of this entry."""
        return _ENTRY_BYTES + len(self.payload)


class Backlog:
    """A queue of entries. `limit_bytes` bounds the entries whose callers were answered from memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._answered: deque[PendingFrame] = deque()  # not recorded; their callers were told that they are
        self._answered_bytes = 0
        self._waiting: deque[PendingFrame] = deque()  # not recorded, callers not answered; later in order

    def __len__(self) -> int:
        return len(self._answered) + len(self._waiting)

    @property
    def n_bytes(self) -> int:
        """Bytes of entries whose callers were answered from memory."""
        return self._answered_bytes

    @property
    def is_full(self) -> bool:
        """True if, after `refused`, the limit is reached and callers wait for the disk."""
        return bool(self._waiting)

    def add(self, entries: Iterable[PendingFrame]) -> None:
        """Append new entries."""
        self._waiting.extend(entries)

    def first(self, n: int) -> list[PendingFrame]:
        """The next `n` entries to record, in order; fewer if there are fewer."""
        head = list(islice(self._answered, n))
        return head + list(islice(self._waiting, n - len(head)))

    def recorded(self, n: int) -> list[Callback]:
        """Remove the first `n` entries, which are on the disk now; returns the callbacks to call, in order."""
        calls = []
        for _ in range(n):
            if self._answered:
                self._answered_bytes -= self._answered.popleft().n_bytes
            elif (done := self._waiting.popleft().done) is not None:
                calls.append(done)
        return calls

    def refused(self) -> list[Callback]:
        """The disk refuses writes for now; returns the callbacks to call all the same, in order."""
        calls, waiting, self._waiting = [], self._waiting, deque()
        for entry in waiting:
            if entry.withdrawn is not None:
                calls.append(entry.withdrawn)
            elif self._waiting or self._answered_bytes + entry.n_bytes > self._limit_bytes:
                self._waiting.append(entry)
            else:
                self._answered.append(entry)
                self._answered_bytes += entry.n_bytes
                if entry.done is not None:
                    calls.append(entry.done)
        return calls
