"""What the journal's disk has not taken yet: entries in order, and which of their callers may be answered from memory. Pure.

While the disk refuses, what runs goes on from memory: its entries stay here and land when the disk comes back. A request that
must be recorded before it is accepted is withdrawn. When the bytes answered from memory reach a bound, answers wait for the
disk: schedulers get no acks any more and so pause the streams of this gateway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

_ENTRY_BYTES = 200  # what an entry costs besides its blobs

Callback = Callable[[], None]


class Entry(NamedTuple):
    """One statement with its values. `done` runs when it is recorded (or may be taken as recorded, see above).

    `withdrawn`: this entry does not wait for a disk that refuses; it is left out, and this runs instead of `done`.
    """

    statement: str
    values: tuple[Any, ...] = ()
    done: Callback | None = None
    withdrawn: Callback | None = None

    @property
    def n_bytes(self) -> int:
        """Memory that it holds."""
        return _ENTRY_BYTES + sum(len(value) for value in self.values if isinstance(value, bytes))


class Backlog:
    """See the file's header. `limit_bytes` bounds what is answered from memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._answered: deque[Entry] = deque()  # not recorded, but their callers know nothing of that
        self._answered_bytes = 0
        self._waiting: deque[Entry] = deque()  # behind them

    def __len__(self) -> int:
        return len(self._answered) + len(self._waiting)

    @property
    def n_bytes(self) -> int:
        """Bytes that were answered from memory and are not recorded."""
        return self._answered_bytes

    @property
    def is_full(self) -> bool:
        """After `refused`: do callers wait for the disk?"""
        return bool(self._waiting)

    def add(self, entries: Iterable[Entry]) -> None:
        """New ones, at the end."""
        self._waiting.extend(entries)

    def first(self, n: int) -> list[Entry]:
        """The next `n` to record, in order."""
        head = list(islice(self._answered, n))
        return head + list(islice(self._waiting, n - len(head)))

    def recorded(self, n: int) -> list[Callback]:
        """The first `n` are on the disk; returns whom to answer now."""
        calls = []
        for _ in range(n):
            if self._answered:
                self._answered_bytes -= self._answered.popleft().n_bytes
            elif (done := self._waiting.popleft().done) is not None:
                calls.append(done)
        return calls

    def refused(self) -> list[Callback]:
        """The disk takes nothing for now; returns whom to answer all the same, in order."""
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
