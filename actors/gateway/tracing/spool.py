"""Spans on their way out, in files: what a killed gateway has not exported yet, its successor exports.

Each line of a file has the spans of one request: the id of the request's span, the number of spans, and the spans as
`encode_spans` makes them. A line is written before the journal forgets its request, so that every request is either here or
still in the journal; a write into the page cache takes 3 us and survives the death of the process. Files are small, and live
for about a second: the exporter deletes one when the collector has what is in it. They are in the run directory, because
nothing of them is wanted after a power loss.

    0-7.3       the third file of gateway 0 in its seventh incarnation
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ID_BYTES = 16  # hexadecimal
_PRIVATE = 0o600


@dataclass(slots=True)
class SpoolFile:
    """A file with spans. `n_spans`: in it."""

    path: Path
    n_spans: int = 0

    def read(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Of each whole line: the id of the request's span, the number of spans, and the spans. The last line of a process that
        was killed may be cut; its request is in the journal. Raises: OSError."""
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            head, _, spans = line.partition(b" ")
            span_id, _, count = head.partition(b":")
            if len(span_id) == _ID_BYTES and count.isdigit() and spans:
                yield span_id, int(count), spans


class Spool:
    """The files of one gateway. Its own methods are called on the event loop; `complete` is read by the exporter's thread."""

    def __init__(self, folder: Path, gateway: int, incarnation: int, most_waiting: int, most_in_file: int) -> None:
        """Make the folder. `most_waiting`, `most_in_file`: in spans. Raises: OSError."""
        self._folder, self._prefix = folder, f"{gateway}-{incarnation}"
        self._most_waiting, self._most_in_file = most_waiting, most_in_file
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.complete: deque[SpoolFile] = deque()  # in the order of their writing
        self.known: set[bytes] = set()  # the spans of requests that earlier incarnations have left here
        self.on_complete: Callable[[], None] = lambda: None  # called when another file is complete
        self._n_added = self._n_done = 0  # spans; the first is the event loop's, the second the exporter's
        self._current: SpoolFile | None = None
        self._fd, self._n_files = -1, 0

    @property
    def n_waiting(self) -> int:
        """Spans in all files."""
        return self._n_added - self._n_done

    @property
    def is_full(self) -> bool:
        """True if no more spans are kept."""
        return self.n_waiting >= self._most_waiting

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
            for span_id, count, _ in file.read():
                self.known.add(span_id)
                file.n_spans += count
            self._n_added += file.n_spans
            self.complete.append(file)

    def add(self, span_id: bytes, n_spans: int, spans: bytes) -> bool:
        """Keep the spans of one request; `span_id`: of the request's span, hexadecimal. Returns False, and keeps nothing, if
        too many wait or the disk is full."""
        if self.n_waiting + n_spans > self._most_waiting:
            return False
        try:
            current = self._current or self._begin()
            line = b"%b:%d %b\n" % (span_id, n_spans, spans)
            n_written = os.write(self._fd, line)
        except OSError:
            return False
        if n_written < len(line):  # the disk is full: what follows goes into another file
            self.seal()
            return False
        current.n_spans += n_spans
        self._n_added += n_spans
        if current.n_spans >= self._most_in_file:
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
        self._n_done += file.n_spans
        file.path.unlink(missing_ok=True)

    def _begin(self) -> SpoolFile:
        self._n_files += 1
        path = self._folder / f"{self._prefix}.{self._n_files}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE)
        self._current = SpoolFile(path)
        return self._current
