"""The request journal: what this gateway has promised and shown. SQLite in WAL mode, one writer thread, group commit.

    requests(number, admitted, state, from_step, ended_s)      ADMIT, checkpoint and END
    steps(step, record)                                        TOKENS: one row for each message of a scheduler

Whatever is put is committed in order, as many entries at once as have gathered; then its callback runs on the loop. A kill
of the process loses nothing that was called back while the journal is healthy. While the disk refuses, what is running goes on
from a bounded memory and lands later, and nothing new is taken (`journal_writer`, `journal_backlog`). While it hangs, what has
to be recorded waits for it, nothing new is taken, and requests that it has not recorded are withdrawn.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from actors.gateway.journal.backlog import Callback, Entry
from actors.gateway.journal.records import Recovered
from actors.gateway.journal.replay import read_journal
from actors.gateway.journal.writer import JournalState, JournalWriter

_APPLICATION_ID = 0x54617264  # "Tard": a file of somebody else is not ours to write into
_SCHEMA_VERSION = 1
_TABLES = {"requests", "steps"}
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
    """CREATE TABLE IF NOT EXISTS requests(
    number INTEGER PRIMARY KEY, admitted BLOB NOT NULL, state BLOB, from_step INTEGER NOT NULL, ended_s REAL)""",
    "CREATE TABLE IF NOT EXISTS steps(step INTEGER PRIMARY KEY, record BLOB NOT NULL)",
)
_BUFFER_BYTES = 64 << 20
_ADMIT = "INSERT INTO requests(number, admitted, from_step) VALUES (?, ?, (SELECT coalesce(max(step), 0) + 1 FROM steps))"
_STEP = "INSERT INTO steps(record) VALUES (?)"
_CHECKPOINT = "UPDATE requests SET state = ?, from_step = (SELECT coalesce(max(step), 0) + 1 FROM steps) WHERE number = ?"
_FINISH = "UPDATE requests SET state = ?, ended_s = ? WHERE number = ?"
_FORGET = "DELETE FROM requests WHERE number = ?"
_PRUNE_REQUESTS = "DELETE FROM requests WHERE ended_s < ?"
# the newest step always stays: step numbers must never begin again
_PRUNE_STEPS = """DELETE FROM steps WHERE step < (SELECT max(step) FROM steps) AND step < coalesce(
    (SELECT min(from_step) FROM requests WHERE ended_s IS NULL), (SELECT max(step) FROM steps))"""


class Journal:
    """One gateway's journal. `path` "" keeps it in memory (tests, `hash-chain` loads)."""

    def __init__(
        self,
        path: str,
        *,
        is_synchronous: bool = False,
        commit_window_s: float = 0.0,
        lock_wait_s: float = 5.0,
        hang_s: float = 6.0,
        buffer_bytes: int = _BUFFER_BYTES,
    ) -> None:
        self._path, self._is_synchronous = path, is_synchronous
        self._window_s, self._lock_wait_s, self._hang_s = commit_window_s, lock_wait_s, hang_s
        self._buffer_bytes = buffer_bytes
        self._admitting: dict[int, Callback] = {}  # by number: whom to tell that it is withdrawn
        self._log = structlog.get_logger().bind(journal=path or "memory")
        self._connection: sqlite3.Connection
        self._writer: JournalWriter | None = None
        self._unreadable: list[int] = []
        self.commits = 0
        self.on_commit: Callable[[float], None] = lambda took_s: None  # for metrics, on the loop
        self.on_failure: Callable[[BaseException], None] = lambda error: None  # nothing will be recorded any more

    @property
    def state(self) -> JournalState:
        """How it stands."""
        return self._writer.state if self._writer is not None else JournalState()

    @property
    def is_healthy(self) -> bool:
        """Does the disk take writes?"""
        return not self.state.trouble

    def open(self) -> list[Recovered]:
        """Open (or make) the file and read what it holds; a file that is not a journal is moved aside. Blocks.

        Raises: sqlite3.OperationalError, OSError when the place cannot be used now (locked, full, read-only).
        """
        try:
            return self._read()
        except sqlite3.OperationalError:
            raise  # says nothing about what the file holds: it stays where it is
        except (sqlite3.DatabaseError, ValueError) as error:
            aside = self._move_aside()
            self._log.error("journal unreadable, moved aside", error=str(error), aside=aside)
            return self._read()

    def _read(self) -> list[Recovered]:
        connection = self._connect()
        try:
            recovered, self._unreadable = read_journal(connection)
        except Exception:
            connection.close()
            raise
        self._connection = connection
        return recovered

    def start(self) -> None:
        """Begin to write. Call it on the loop on which callbacks shall run."""
        name = self._path or "memory"
        self._writer = JournalWriter(self._connection, self._buffer_bytes, self._window_s, self._hang_s, name)
        self._writer.on_hang = self._withdraw
        self._writer.on_commit, self._writer.on_failure = self._committed, lambda error: self.on_failure(error)
        self._put = self._writer.put
        self._writer.start()
        for number in self._unreadable:  # or its number would meet it again, and it would keep steps from being pruned
            self.forget(number)
        self._unreadable = []

    def admit(self, number: int, order: bytes, done: Callback, withdrawn: Callback) -> None:
        """Record a request; `done` runs when it is certain, `withdrawn` when the disk refuses: then it is not recorded. It runs
        also when the disk hangs: then it may be, and has to be forgotten."""
        self._admitting[number] = withdrawn
        settle = self._settle
        self._put(Entry(_ADMIT, (number, order), lambda: settle(number, done), lambda: settle(number, withdrawn)))

    def step(self, record: bytes, done: Callback) -> None:
        """Record the tokens and endings of one message (b"": nothing); `done` runs when they and all before are certain."""
        self._put(Entry(_STEP, (record,), done) if record else Entry("", (), done))

    def checkpoint(self, number: int, states: bytes) -> None:
        """Move a long-running request's tokens into its own row, so that old steps may go."""
        self._put(Entry(_CHECKPOINT, (states, number)))

    def finish(self, number: int, states: bytes, ended_s: float) -> None:
        """A request is over and stays readable for a while."""
        self._put(Entry(_FINISH, (states, ended_s, number)))

    def forget(self, number: int) -> None:
        """A request is over and nobody can ask for it again."""
        self._put(Entry(_FORGET, (number,)))

    def prune(self, ended_before_s: float) -> None:
        """Drop what is past its retention, and steps that no living request needs."""
        self._put(Entry(_PRUNE_REQUESTS, (ended_before_s,)))
        self._put(Entry(_PRUNE_STEPS))

    async def close(self) -> None:
        """Write what is left and close the file."""
        if self._writer is not None:
            await self._writer.close()
        else:
            self._connection.close()

    def _settle(self, number: int, call: Callback) -> None:
        if self._admitting.pop(number, None) is not None:
            call()

    def _withdraw(self) -> None:
        admitting, self._admitting = self._admitting, {}
        for withdrawn in admitting.values():
            withdrawn()

    def _committed(self, took_s: float) -> None:
        self.commits += 1
        self.on_commit(took_s)

    def _connect(self) -> sqlite3.Connection:
        if self._path:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds prompts: nobody else reads it
        connection = sqlite3.connect(self._path or ":memory:", self._lock_wait_s, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except Exception:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if tables and (mark, version) != (_APPLICATION_ID, _SCHEMA_VERSION):
            raise ValueError(f"application_id: expected a journal of version {_SCHEMA_VERSION}, got {mark}.{version}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._is_synchronous else 'NORMAL'}")
        if tables >= _TABLES:  # nothing is written: a journal can be taken over while its disk is full
            return
        connection.execute("PRAGMA journal_mode = WAL")
        _make(connection)

    def _move_aside(self) -> str:
        aside = f"{self._path}.unreadable-{int(time.time())}"
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(self._path + suffix):
                os.replace(self._path + suffix, aside + suffix)
        return aside


def _make(connection: sqlite3.Connection) -> None:
    """All of a journal or nothing of it, whenever the process is killed or the disk refuses."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
