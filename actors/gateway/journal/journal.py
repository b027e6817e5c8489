"""The request journal: the requests that this gateway has accepted, and the tokens that it has shown to clients.

A folder of files (`segment_log.py`) with one frame and one checksum for each entry (`frames.py`), one writer thread, group
commit. Entries are written in order, all that are waiting in one call of the system; then their callbacks run on the event
loop. While the journal is healthy, a kill of the process loses nothing whose callback has run. While the disk refuses writes,
running requests continue with a bounded buffer in memory that is written later, and new requests are refused (`writer.py`,
`backlog.py`). While a write hangs, everything to be recorded waits, new requests are refused, and requests that are not
recorded are withdrawn. A damaged byte costs its own frame: a step's tokens are computed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from actors.gateway.journal.backlog import Callback, PendingFrame
from actors.gateway.journal.clock import JournalClock
from actors.gateway.journal.frames import Damage, Frame, Kind, foreign_version, read_frames
from actors.gateway.journal.records import FinishedRecord, Recovered, encode_record
from actors.gateway.journal.replay import Replay
from actors.gateway.journal.segment_log import SEGMENT_BYTES, SegmentLog
from actors.gateway.journal.segments import Segment, lock_folder, read_segment, segments_in, unclaimed_folders
from actors.gateway.journal.writer import JournalState, JournalWriter
from actors.gateway.poison.remembered import Remembered
from actors.gateway.settings import GatewaySettings
from messages.errors import ConfigError

_BUFFER_BYTES = 64 << 20
_REMEMBERED = 0  # the number of what is remembered of prompts and callers


class Journal:
    """One gateway's journal. `path`: its folder; "": in memory, lost with the process."""

    def __init__(
        self,
        path: str,
        *,
        is_synchronous: bool = False,
        commit_window_s: float = 0.0,
        lock_wait_s: float = 5.0,
        hang_s: float = 6.0,
        buffer_bytes: int = _BUFFER_BYTES,
        gateways: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._path, self._gateways = path, gateways
        self._window_s, self._lock_wait_s, self._hang_s = commit_window_s, lock_wait_s, hang_s
        self._buffer_bytes = buffer_bytes
        self._admitting: dict[int, Callback] = {}  # requests that are not recorded yet, by number: their `withdrawn` callbacks
        self._log = structlog.get_logger().bind(journal=path or "memory")
        self._clock = JournalClock()
        folder = Path(path) if path else None
        self._files = SegmentLog(folder, self._clock, is_synchronous=is_synchronous, segment_bytes=segment_bytes)
        self._writer: JournalWriter | None = None
        self._unreadable: list[int] = []
        self._adopted: list[tuple[Path, SegmentLog]] = []  # folders of other gateways, locked
        self.adopted: set[int] = set()  # numbers here of requests in such folders; the request manager must record them
        self.finished: list[FinishedRecord] = []  # what `open` found besides unfinished requests
        self.found: list[Remembered] = []  # what earlier processes have remembered, of this journal and of adopted ones
        self.remembered: Callable[[], Remembered] = Remembered  # what is to be remembered now; set by its owner
        self.commits = 0
        self.on_commit: Callable[[float], None] = lambda took_s: None  # seconds of one commit; on the event loop
        self.on_failure: Callable[[BaseException], None] = lambda error: None  # the journal can record nothing any more
        self.on_answered: Callable[[], None] = lambda: None  # the callbacks of all entries of one commit have been called
        self.on_pinned: Callable[[list[int]], None] = lambda numbers: None  # call `request`, `answer` or `delete` for each

    @classmethod
    def of(cls, settings: GatewaySettings) -> Journal:
        """The journal that these settings ask for."""
        return cls(
            settings.journal_path,
            is_synchronous=settings.journal_sync,
            commit_window_s=settings.commit_window_s,
            buffer_bytes=settings.journal_buffer_bytes,
            gateways=settings.gateways,
        )

    @property
    def state(self) -> JournalState:
        """The state of the journal; healthy before `start`."""
        return self._writer.state if self._writer is not None else JournalState()

    @property
    def is_healthy(self) -> bool:
        """True while the disk accepts writes."""
        return not self.state.trouble

    @property
    def next_number(self) -> int:
        """Numbers from here on have never been used for a request of this journal. Valid after `open`."""
        return self._files.next_number

    def open(self) -> list[Recovered]:
        """Lock the folder and read it, or make it; returns the unfinished requests, and sets `finished`. Blocks.

        With `gateways`, the journals of gateways that do not exist any more are read too (`unclaimed_folders`).

        Raises: ConfigError when the path is not a folder, or a file in it has another version of the format; OSError when it
        cannot be used now (locked, no access).
        """
        if not self._path:
            return []
        folder = Path(self._path)
        _check_is_folder(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._files.lock = lock_folder(folder, self._lock_wait_s)
        self._files.segments = segments_in(folder)
        replay = _read(self._files.segments, self._log, self._files.note)
        self._clock.go_on(replay.header, replay.last_s)
        unfinished, self.finished = replay.results(self._clock.now_s())
        self.found = [replay.remembered(self._clock.now_s())]
        self._files.next_number = replay.next_number
        self._unreadable = sorted(replay.unreadable)
        if replay.unreadable or replay.shortened:
            unreadable, shortened = self._unreadable, sorted(replay.shortened)
            self._log.error(
                "journal: damaged records; lost requests, and requests whose tokens are computed again",
                lost=unreadable,
                computed_again=shortened,
            )
        for other in unclaimed_folders(self._path, self._gateways):
            unfinished += self._adopt(other, {one.spec.request for one in unfinished})
        return unfinished

    def _adopt(self, folder: Path, unfinished: set[str]) -> list[Recovered]:
        """Read the journal of a gateway that does not exist any more; its requests get numbers of this journal.

        A request that is here already was recorded when an earlier process adopted it.
        """
        clock = JournalClock()
        files = SegmentLog(folder, clock)
        try:
            files.lock = lock_folder(folder, 0.0)
            replay = _read(segments_in(folder), self._log.bind(adopted=folder.name), files.note)
        except (OSError, ConfigError) as error:
            files.close()
            self._log.error("journal not adopted, the next start will try again", folder=folder.name, error=str(error))
            return []
        clock.go_on(replay.header, replay.last_s)
        recovered, finished = replay.results(clock.now_s())
        self.found.append(replay.remembered(clock.now_s()))
        known = unfinished | {one.record.request for one in self.finished}
        recovered = [one for one in recovered if one.spec.request not in known]
        finished = [one for one in finished if one.record.request not in known]
        first = self._files.next_number
        self._files.next_number += len(recovered) + len(finished)
        for number, one in enumerate(recovered, first):
            one.number = number
        self.finished += [FinishedRecord(n, f.record, f.ended_age_s) for n, f in enumerate(finished, first + len(recovered))]
        self.adopted.update(range(first, self._files.next_number))
        self._adopted.append((folder, files))
        self._log.info("journal adopted", folder=folder.name, unfinished=len(recovered), finished=len(finished))
        return recovered

    def start(self) -> None:
        """Start the writer thread. Callbacks will run on the event loop that calls this."""
        self._writer = JournalWriter(self._files, self._buffer_bytes, self._window_s, self._hang_s, self._path or "memory")
        self._writer.on_hang = self._withdraw
        self._writer.on_commit, self._writer.on_failure = self._committed, lambda error: self.on_failure(error)
        self._writer.on_pinned, self._writer.on_answered = self._pinned, lambda: self.on_answered()
        self._put = self._writer.put
        self._writer.start()
        for number in self._unreadable:  # they would keep old files from being deleted
            self.delete(number)
        self._unreadable = []

    def admission(self, number: int, record: bytes, done: Callback, withdrawn: Callback) -> None:
        """Record a new request. Exactly one callback is called: `done` when it is recorded, `withdrawn` when the disk refuses.

        `withdrawn` is also called when the disk hangs. The request may be recorded later then: call `delete`.
        """
        self._admitting[number] = withdrawn
        settle = self._settle
        self._put(PendingFrame(Kind.REQUEST, number, record, lambda: settle(number, done), lambda: settle(number, withdrawn)))

    def adopt_all(self) -> None:
        """Delete the adopted folders once everything put before is recorded: every request in `adopted` must be among it."""
        for folder, _ in self._adopted:
            self._put(PendingFrame(None, obsolete=folder))
        self.adopted = set()

    def step(self, record: bytes, done: Callback, refused: Callback | None = None) -> None:
        """Record tokens and endings of one message (b"": none). `done` is called when all entries up to this are recorded.

        `refused`: if given, it is dropped when the disk refuses writes, and `refused` is called instead of `done`.
        """
        self._put(PendingFrame(Kind.STEP if record else None, 0, record, done, refused))

    def request(self, number: int, record: bytes) -> None:
        """Record everything about an unfinished request again: its earlier entries are not needed any more."""
        self._put(PendingFrame(Kind.REQUEST, number, record))

    def answer(self, number: int, record: bytes) -> None:
        """Record everything about a finished request again."""
        self._put(PendingFrame(Kind.ANSWER, number, record))

    def finish(self, number: int, record: bytes) -> None:
        """Record the final state of a request; it is kept until `delete`."""
        self._put(PendingFrame(Kind.FINISH, number, record))

    def read(self, number: int) -> None:
        """Record that the client of a finished request has the whole answer."""
        self._put(PendingFrame(Kind.READ, number))

    def delete(self, number: int) -> None:
        """Forget a request that no client can ask for again."""
        self._put(PendingFrame(Kind.FORGET, number))

    def remember(self) -> None:
        """Record everything that `remembered` returns, in place of the earlier record."""
        self._put(PendingFrame(Kind.REMEMBERED, _REMEMBERED, encode_record(self.remembered())))

    async def close(self) -> None:
        """Write what is left, if the disk accepts it, and close the files."""
        if self._writer is not None:
            await self._writer.close()
        for files in (self._files, *(files for _, files in self._adopted)):
            files.close()

    def _settle(self, number: int, call: Callback) -> None:
        if self._admitting.pop(number, None) is not None:
            call()

    def _pinned(self, numbers: list[int]) -> None:
        if _REMEMBERED in numbers:
            self.remember()
        self.on_pinned([number for number in numbers if number != _REMEMBERED])

    def _withdraw(self) -> None:
        admitting, self._admitting = self._admitting, {}
        for withdrawn in admitting.values():
            withdrawn()

    def _committed(self, took_s: float) -> None:
        self.commits += 1
        self.on_commit(took_s)


def _read(
    segments: Iterable[Segment], log: structlog.stdlib.BoundLogger, note: Callable[[Segment, Kind, int, int], None]
) -> Replay:
    """Read files and call `note` for each frame but those of steps, which it does not need. A file that cannot be opened, or
    damage inside one, is logged. Raises: ConfigError for a file of another version of the format, which must not be deleted."""
    replay = Replay()
    for segment in segments:
        try:
            data = read_segment(segment)
        except OSError as error:
            segment.is_damaged = True
            replay.add(Damage(0, 0, is_at_end=False))
            log.error("journal: a file cannot be read", file=segment.path.name, error=str(error))
            continue
        for frame in read_frames(data, segment.salt):
            replay.add(frame)
            if isinstance(frame, Frame):
                if frame.kind is not Kind.STEP:
                    note(segment, frame.kind, frame.number, len(frame.payload))
                continue
            if frame.n_bytes == len(data) and (version := foreign_version(data)):
                expected = f"journal: expected files that this release can read, got version {version!r} of the format"
                raise ConfigError(f"{expected} in {segment.path}; start the release that wrote it, or set another state_dir")
            segment.is_damaged = segment.is_damaged or not frame.is_at_end
            _say_damage(log, segment, frame)
    return replay


def _say_damage(log: structlog.stdlib.BoundLogger, segment: Segment, damage: Damage) -> None:
    say = log.warning if damage.is_at_end else log.error
    what = "journal: the last write was cut off" if damage.is_at_end else "journal: damaged bytes skipped"
    say(what, file=segment.path.name, offset=damage.offset, bytes=damage.n_bytes)


def _check_is_folder(folder: Path) -> None:
    """Refuse what can never be a journal's folder. Raises: ConfigError naming the path."""
    if not os.path.lexists(folder) or folder.is_dir():
        return
    kind = "a file" if folder.is_file() else "a special file" if folder.exists() else "a link to nothing"
    raise ConfigError(f"journal: expected a folder or nothing at {folder}, got {kind}; remove it or set another state_dir")
