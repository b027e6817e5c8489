"""Records of ended requests on their way out, in files: what a killed gateway has not exported yet, its successor exports.

A file is a row of entries: a length, the id of the request's span, and the record (`ended_request.py`). An entry is written
before the journal forgets its request, so that every request is either here or still in the journal. A write into the page
cache takes microseconds and survives the death of the process. Files are small, and live for about a second: the exporter
deletes one when the collector has what is in it. They are in the run directory, because nothing of them is wanted after a power
loss.

    0-7.3       the third file of gateway 0 in its seventh incarnation
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct("<I8s")  # the length of the record, and the id of the span
_PRIVATE = 0o600


@dataclass(slots=True)
class SpoolFile:
    """A file. `n_requests`: whose records are in it."""

    path: Path
    n_requests: int = 0

    def read(self) -> Iterator[tuple[bytes, bytes]]:
        """The span id and the record of each whole entry. The last one of a process that was killed may be cut; its request is
        in the journal. Raises: OSError."""
        data, place = self.path.read_bytes(), 0
        while place + _HEAD.size <= len(data):
            length, span_id = _HEAD.unpack_from(data, place)
            place += _HEAD.size + length
            if place <= len(data):
                yield span_id, data[place - length : place]


class Spool:
    """The files of one gateway. Its own methods are called on the event loop; `complete` is read by the exporter's thread."""

    def __init__(self, folder: Path, gateway: int, incarnation: int, most_waiting: int, most_in_file: int) -> None:
        """Make the folder. `most_waiting`, `most_in_file`: in requests. Raises: OSError."""
        self._folder, self._prefix = folder, f"{gateway}-{incarnation}"
        self._most_waiting, self._most_in_file = most_waiting, most_in_file
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.complete: deque[SpoolFile] = deque()  # in the order of their writing
        self.known: set[bytes] = set()  # the spans of requests that earlier incarnations have left here
        self.on_complete: Callable[[], None] = lambda: None  # called when another file is complete
        self._n_added = self._n_done = 0  # requests; the first is the event loop's, the second the exporter's
        self._current: SpoolFile | None = None
        self._fd, self._n_files = -1, 0

    @property
    def n_waiting(self) -> int:
        """Requests in all files."""
        return self._n_added - self._n_done

    def find(self, n_gateways: int) -> None:
        """Take over what earlier incarnations have left; gateway 0 also what gateways left that do not exist any more.

        Raises: OSError.
        """
        gateway = int(self._prefix.partition("-")[0])
        found: list[tuple[int, int, Path]] = []
        for path in self._folder.iterdir():
            numbers = path.name.replace("-", ".").split(".")
            if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
                continue
            owner, incarnation, number = map(int, numbers)
            if path.name.startswith(f"{self._prefix}."):
                self._n_files = max(self._n_files, number)
            if owner == gateway or (gateway == 0 and owner >= n_gateways > 0):
                found.append((incarnation, number, path))
        for _, _, path in sorted(found):
            file = SpoolFile(path)
            for span_id, _ in file.read():
                self.known.add(span_id)
                file.n_requests += 1
            self._n_added += file.n_requests
            self.complete.append(file)

    def add(self, span_id: bytes, record: bytes) -> bool:
        """Keep the record of one request; `span_id`: 8 bytes. Returns False, and keeps nothing, if too many wait or the disk is
        full."""
        if self.n_waiting >= self._most_waiting:
            return False
        entry = _HEAD.pack(len(record), span_id) + record
        try:
            current = self._current or self._begin()
            n_written = os.write(self._fd, entry)
        except OSError:
            return False
        if n_written < len(entry):  # the disk is full: what follows goes into another file
            self.seal()
            return False
        current.n_requests += 1
        self._n_added += 1
        if current.n_requests >= self._most_in_file:
            self.seal()
        return True

    def seal(self) -> None:
        """The newest file, if there is one, is complete."""
        if (current := self._current) is None:
            return
        os.close(self._fd)
        self._current, self._fd = None, -1
        self.complete.append(current)
        self.on_complete()

    def done(self, file: SpoolFile) -> None:
        """What is in the oldest complete file is exported, or given up."""
        self.complete.popleft()
        self._n_done += file.n_requests
        file.path.unlink(missing_ok=True)

    def _begin(self) -> SpoolFile:
        self._n_files += 1
        path = self._folder / f"{self._prefix}.{self._n_files}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE)
        self._current = SpoolFile(path)
        return self._current
