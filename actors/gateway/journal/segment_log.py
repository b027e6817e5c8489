"""Appends frames to the newest file of a journal, and deletes the oldest files when no request lives in them any more.

Every process begins its own file. It begins a new one when that has 1 MiB and the size of all unfinished requests, or all that
the system allows, or when the disk has failed to write it. A request lives in the file of its newest REQUEST frame. When all
files together are larger than twice what lives in them (plus 4 MiB), the owner is asked (`pinned`) to write again the requests
that live in the oldest file: slow, waiting and finished ones. Then that file is deleted. Number 0 stands for what is remembered
about prompts and callers, and lives like a finished request. Files up to the last one with damage are replaced in the same way.
An unfinished request is written again as soon as two newer files exist, so that a start has few steps to read. The oldest file
is deleted first, because a later one may say that a request in an earlier one is forgotten.

A file that somebody has removed counts as damaged: its requests are written again, into a new folder if necessary.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from actors.gateway.journal.backlog import PendingFrame
from actors.gateway.journal.clock import JournalClock, SegmentHeader
from actors.gateway.journal.frames import Kind, encode_frame
from actors.gateway.journal.segments import Segment, lock_folder, new_segment

SEGMENT_BYTES = 1 << 20  # a start reads all files, and the streams of a dead gateway wait for that
_SPARE_SEGMENTS = 4
_WRITE_BYTES = 1 << 20
_POLL_S = 0.1  # between two looks whether all files are there
_MAX_PINNED = 128  # requests that are asked at a time to be written again, so that the event loop is not held for long


class SegmentLog:
    """The files of one journal. `folder` None: entries go nowhere. Used by one thread at a time."""

    def __init__(
        self,
        folder: Path | None,
        clock: JournalClock,
        *,
        is_synchronous: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._folder, self._clock = folder, clock
        self._is_synchronous, self._segment_bytes = is_synchronous, segment_bytes
        self.segments: list[Segment] = []  # oldest first
        self.next_number = 1
        self._home: dict[int, Segment] = {}  # where each request lives
        self._living_bytes: dict[int, int] = {}  # its REQUEST and FINISH frames
        self._n_living_bytes = 0
        self._asked: set[int] = set()  # requests that `pinned` has returned
        self.lock = -1  # the descriptor that holds the lock on the folder
        self._descriptor = -1
        self._checked_s = 0.0
        self._size_bytes = 0  # of whole frames in the file being written
        self._header_bytes = 0  # of its first one
        self.on_call: Callable[[], None] = lambda: None  # before each call of the operating system

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(segment.n_bytes for segment in self.segments)

    @property
    def _growing_bytes(self) -> int:
        """Bytes of all unfinished requests. A file has room for them, or writing them again would be endless."""
        return sum(self._living_bytes[number] for segment in self.segments for number in segment.growing)

    def append(self, entries: Sequence[PendingFrame]) -> None:
        """Write entries, in order. When this raises, none of them counts as written, and all may be given again.

        Raises: OSError when the disk refuses.
        """
        if self._folder is not None:
            if time.monotonic() - self._checked_s >= _POLL_S:
                self._note_lost_files()
            if self._descriptor < 0 or (self._size_bytes >= self._segment_bytes and self._size_bytes >= self._growing_bytes):
                self._begin_next(self._folder)
            try:
                self._write_entries(entries)
            except OSError as error:
                if error.errno != errno.EFBIG or self._descriptor >= 0:
                    raise
                self._begin_segment(self._folder)  # the system allows no larger files
                self._write_entries(entries)
            for entry in entries:
                if entry.obsolete is not None:
                    shutil.rmtree(entry.obsolete, ignore_errors=True)
        self._delete_unused()

    def _write_entries(self, entries: Sequence[PendingFrame]) -> None:
        """Append those entries that have a frame to the newest file, and note where they live. Raises: OSError."""
        segment, now_s = self.segments[-1], self._clock.now_s()
        framed = [(e, encode_frame(e.kind, e.number, now_s, e.payload, segment.salt)) for e in entries if e.kind is not None]
        self._write_or_undo(b"".join(frame for _, frame in framed))
        segment.n_bytes = self._size_bytes
        for entry, frame in framed:
            self.note(segment, Kind(entry.kind), entry.number, len(frame))

    def note(self, segment: Segment, kind: Kind, number: int, n_bytes: int) -> None:
        """Note where a request lives: a frame about it stands in `segment`."""
        if kind in (Kind.REQUEST, Kind.ANSWER, Kind.REMEMBERED):
            self._leave(number)
            segment.living.add(number)
            if kind is Kind.REQUEST:
                segment.growing.add(number)
            self._home[number] = segment
            self._add_bytes(number, n_bytes)
            self.next_number = max(self.next_number, number + 1)
        elif kind is Kind.FINISH and number in self._home:
            self._home[number].growing.discard(number)
            self._add_bytes(number, n_bytes)
        elif kind is Kind.FORGET:
            self._leave(number)

    def pinned(self) -> list[int]:
        """Some requests that must be written again or forgotten, so that old files can be deleted; [] if none must.

        Returns no further ones until these are written.
        """
        if self._asked or len(self.segments) < 2:
            return []
        limit_bytes = 2 * self._n_living_bytes + _SPARE_SEGMENTS * self._segment_bytes
        if self.n_bytes > limit_bytes or any(segment.is_damaged for segment in self.segments[:-1]):
            candidates = self.segments[0].living
        else:
            candidates = next((segment.growing for segment in self.segments[:-2] if segment.growing), set[int]())
        self._asked = set(sorted(candidates)[:_MAX_PINNED])
        return sorted(self._asked)

    def lost_files(self) -> list[Segment]:
        """The files that somebody has removed, and that the next `append` takes note of."""
        self.on_call()
        return [one for one in self.segments if not one.is_damaged and not one.path.exists()]

    def _note_lost_files(self) -> None:
        self._checked_s = time.monotonic()
        if not (lost := self.lost_files()):
            return
        for segment in lost:
            segment.is_damaged = True
        if self.segments[-1].is_damaged:
            self._close_file()
        names = [segment.path.name for segment in lost]
        structlog.get_logger().error("journal: files were removed; their requests are written again", files=names)

    def close(self) -> None:
        """Close the file and release the folder."""
        self._close_file()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin_next(self, folder: Path) -> None:
        """Begin another file; while this process can open none, the present one becomes larger instead."""
        try:
            self._begin_segment(folder)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or self._descriptor < 0:
                raise

    def _begin_segment(self, folder: Path) -> None:
        self.on_call()
        self._make_folder(folder)
        index = self.segments[-1].index + 1 if self.segments else 1
        segment = new_segment(folder, index)
        descriptor = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)  # it holds prompts
        self._close_file()
        self._descriptor, self._size_bytes = descriptor, 0
        header = SegmentHeader(self._clock.boot, self._clock.origin_s, self.next_number)
        try:
            frame = encode_frame(Kind.HEADER, 0, self._clock.now_s(), msgspec.msgpack.encode(header), segment.salt)
            self._write_or_undo(frame)
            if self._is_synchronous:
                _sync_folder(folder)
        except OSError:
            self._close_file()
            with contextlib.suppress(OSError):
                os.unlink(segment.path)
            raise
        segment.n_bytes = self._header_bytes = self._size_bytes
        self.segments.append(segment)

    def _make_folder(self, folder: Path) -> None:
        """Make and lock the folder again if somebody has removed it. Raises: OSError."""
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # `parents` gives those above the usual mode
        folder.mkdir(exist_ok=True, mode=0o700)
        if self.lock >= 0 and not os.path.samestat(os.fstat(self.lock), os.stat(folder)):
            lock = lock_folder(folder, 0.0)
            os.close(self.lock)
            self.lock = lock

    def _write_or_undo(self, data: bytes) -> None:
        """Append bytes to the file. After an error, cut off what was written of them, or begin another file next time."""
        try:
            self._write(data)
        except OSError as error:
            try:
                os.ftruncate(self._descriptor, self._size_bytes)
                has_entries = self._size_bytes > self._header_bytes
                is_bad = error.errno == errno.EIO or (error.errno == errno.EFBIG and has_entries)  # the limit is that of a file
            except OSError:
                is_bad = True
            if is_bad:  # nothing more can be written here, another place on the disk may do
                self._close_file()
            raise
        self._size_bytes += len(data)

    def _write(self, data: bytes) -> None:
        view, at = memoryview(data), self._size_bytes
        while view:
            self.on_call()
            n_bytes = os.pwrite(self._descriptor, view[:_WRITE_BYTES], at)
            view, at = view[n_bytes:], at + n_bytes
        if self._is_synchronous and data:
            self.on_call()
            os.fdatasync(self._descriptor)

    def _delete_unused(self) -> None:
        """Delete the oldest files while nothing lives in them. The newest file stays."""
        while len(self.segments) > 1 and not self.segments[0].living:
            try:
                self.on_call()
                os.unlink(self.segments[0].path)
            except FileNotFoundError:
                pass
            except OSError:
                return  # later
            del self.segments[0]

    def _leave(self, number: int) -> None:
        self._asked.discard(number)
        segment = self._home.pop(number, None)
        if segment is not None:
            segment.living.discard(number)
            segment.growing.discard(number)
            self._n_living_bytes -= self._living_bytes.pop(number)

    def _add_bytes(self, number: int, n_bytes: int) -> None:
        self._living_bytes[number] = self._living_bytes.get(number, 0) + n_bytes
        self._n_living_bytes += n_bytes


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
