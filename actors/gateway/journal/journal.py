"""The request journal: the requests that this gateway has accepted, and the tokens that it has shown to clients.

SQLite in WAL mode, one writer thread, group commit:

    requests(number, admitted, state, from_step, ended_s)      the order, a checkpoint or the final state, the end
    steps(step, record)                                        tokens and endings, one row for each message of a scheduler

Entries are committed in order, all that are waiting in one transaction; then their callbacks run on the event loop. While the
journal is healthy, a kill of the process loses nothing whose callback has run. While the disk refuses writes, running requests
continue with a bounded buffer in memory that is written later, and new requests are refused (`writer.py`, `backlog.py`). While
a write hangs, everything to be recorded waits, new requests are refused, and requests that are not recorded are withdrawn.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from actors.gateway.journal.backlog import Callback, Entry
from actors.gateway.journal.records import Recovered
from actors.gateway.journal.replay import read_journal
from actors.gateway.journal.writer import JournalState, JournalWriter, can_never_work
from messages.errors import ConfigError

_APPLICATION_ID = 0x54617264  # "Tard": files of other applications are not written
_SCHEMA_VERSION = 1
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
    """CREATE TABLE IF NOT EXISTS requests(
    number INTEGER PRIMARY KEY, admitted BLOB NOT NULL, state BLOB, from_step INTEGER NOT NULL, ended_s REAL)""",
    "CREATE TABLE IF NOT EXISTS steps(step INTEGER PRIMARY KEY, record BLOB NOT NULL)",
)
_COLUMNS = """SELECT tables.name, columns.name || ' ' || columns.type
    || CASE WHEN columns."notnull" THEN ' NOT NULL' ELSE '' END || CASE WHEN columns.pk THEN ' PRIMARY KEY' ELSE '' END
    FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' ORDER BY columns.cid"""
_BUFFER_BYTES = 64 << 20
_ADMIT = "INSERT INTO requests(number, admitted, from_step) VALUES (?, ?, (SELECT coalesce(max(step), 0) + 1 FROM steps))"
_STEP = "INSERT INTO steps(record) VALUES (?)"
_CHECKPOINT = "UPDATE requests SET state = ?, from_step = (SELECT coalesce(max(step), 0) + 1 FROM steps) WHERE number = ?"
_FINISH = "UPDATE requests SET state = ?, ended_s = ? WHERE number = ?"
_FORGET = "DELETE FROM requests WHERE number = ?"
_PRUNE_REQUESTS = "DELETE FROM requests WHERE ended_s < ?"
# the newest step is always kept, so that step numbers never repeat
_PRUNE_STEPS = """DELETE FROM steps WHERE step < (SELECT max(step) FROM steps) AND step < coalesce(
    (SELECT min(from_step) FROM requests WHERE ended_s IS NULL), (SELECT max(step) FROM steps))"""


class Journal:
    """One gateway's journal. `path` "": in memory, lost with the process."""

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
        self._admitting: dict[int, Callback] = {}  # requests that are not recorded yet, by number: their `withdrawn` callbacks
        self._log = structlog.get_logger().bind(journal=path or "memory")
        self._connection: sqlite3.Connection
        self._writer: JournalWriter | None = None
        self._unreadable: list[int] = []
        self.commits = 0
        self.on_commit: Callable[[float], None] = lambda took_s: None  # seconds of one commit; on the event loop
        self.on_failure: Callable[[BaseException], None] = lambda error: None  # the journal can record nothing any more

    @property
    def state(self) -> JournalState:
        """The state of the journal; healthy before `start`."""
        return self._writer.state if self._writer is not None else JournalState()

    @property
    def is_healthy(self) -> bool:
        """True while the disk accepts writes."""
        return not self.state.trouble

    def open(self) -> list[Recovered]:
        """Open or create the file; returns every request in it. A file that is not a readable journal is renamed. Blocks.

        Raises: ConfigError when the path, or that of its write-ahead log, is not a file; sqlite3.OperationalError, OSError
        when the file cannot be opened now (locked, disk full, read-only).
        """
        _check_is_file(self._path)
        try:
            return self._read()
        except (sqlite3.DatabaseError, ValueError) as error:
            if isinstance(error, sqlite3.OperationalError) and not can_never_work(error):
                raise  # not a sign of damage: keep the file
            aside = self._move_aside()
            self._log.error("journal unreadable, file renamed", error=str(error), renamed_to=aside)
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
        """Start the writer thread. Callbacks will run on the event loop that calls this."""
        name = self._path or "memory"
        self._writer = JournalWriter(self._connection, self._buffer_bytes, self._window_s, self._hang_s, name)
        self._writer.on_hang = self._withdraw
        self._writer.on_commit, self._writer.on_failure = self._committed, lambda error: self.on_failure(error)
        self._put = self._writer.put
        self._writer.start()
        for number in self._unreadable:  # their numbers would be used again, and they would keep old steps from being pruned
            self.delete(number)
        self._unreadable = []

    def admit(self, number: int, order: bytes, done: Callback, withdrawn: Callback) -> None:
        """Record a request. Exactly one callback is called: `done` when it is recorded, `withdrawn` when the disk refuses it.

        `withdrawn` is also called when the disk hangs. The request may be recorded later then: call `delete`.
        """
        self._admitting[number] = withdrawn
        settle = self._settle
        self._put(Entry(_ADMIT, (number, order), lambda: settle(number, done), lambda: settle(number, withdrawn)))

    def step(self, record: bytes, done: Callback) -> None:
        """Record tokens and endings of one message (b"": none). `done` is called when all entries up to this are recorded."""
        self._put(Entry(_STEP, (record,), done) if record else Entry("", (), done))

    def checkpoint(self, number: int, states: bytes) -> None:
        """Store the tokens of a long request in its own row, so that old steps can be deleted."""
        self._put(Entry(_CHECKPOINT, (states, number)))

    def finish(self, number: int, states: bytes, ended_s: float) -> None:
        """Store the final state of a request; it is kept until `prune` or `delete`. `ended_s`: Unix time."""
        self._put(Entry(_FINISH, (states, ended_s, number)))

    def delete(self, number: int) -> None:
        """Delete a request that no client can ask for again."""
        self._put(Entry(_FORGET, (number,)))

    def prune(self, ended_before_s: float) -> None:
        """Delete requests that ended before `ended_before_s` (Unix time), and steps that no unfinished request needs."""
        self._put(Entry(_PRUNE_REQUESTS, (ended_before_s,)))
        self._put(Entry(_PRUNE_STEPS))

    async def close(self) -> None:
        """Write what is left, if the disk accepts it, and close the file."""
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
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds prompts: only its owner may read it
        connection = sqlite3.connect(self._path or ":memory:", self._lock_wait_s, isolation_level=None, check_same_thread=False)
        connection.text_factory = bytes  # a damaged row may hold text that is not UTF-8
        try:
            self._prepare(connection)
        except Exception:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        tables, expected = _columns_by_table(connection), _expected_columns()
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if tables and (mark, version) != (_APPLICATION_ID, _SCHEMA_VERSION):
            raise ValueError(f"application_id: expected a journal of version {_SCHEMA_VERSION}, got {mark}.{version}")
        for name in tables.keys() & expected.keys():
            if tables[name] != expected[name]:
                raise ValueError(f"table {name}: expected columns {expected[name]}, got {tables[name]}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._is_synchronous else 'NORMAL'}")
        if tables.keys() >= expected.keys():  # write nothing, so that a journal can be opened while its disk is full
            return
        connection.execute("PRAGMA journal_mode = WAL")
        _make(connection)

    def _move_aside(self) -> str:
        aside = f"{self._path}.unreadable-{int(time.time())}"
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(self._path + suffix):
                os.replace(self._path + suffix, aside + suffix)
        return aside


def _check_is_file(path: str) -> None:
    """Refuse what SQLite could never open, or would wait for. Raises: ConfigError naming the path."""
    for place in (path, f"{path}-wal", f"{path}-shm") if path else ():
        if not os.path.lexists(place) or os.path.isfile(place):
            continue
        kind = "a directory" if os.path.isdir(place) else "a special file" if os.path.exists(place) else "a link to nothing"
        raise ConfigError(f"journal: expected a file or nothing at {place}, got {kind}; remove it or set another state_dir")


def _columns_by_table(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each table, such as "admitted BLOB NOT NULL", in order."""
    columns: dict[str, list[str]] = {}
    for table, column in connection.execute(_COLUMNS):
        columns.setdefault(str(table, "utf-8", "replace"), []).append(str(column, "utf-8", "replace"))
    return columns


def _expected_columns() -> dict[str, list[str]]:
    """As `_columns_by_table`, of a new journal."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.text_factory = bytes
        _make(connection)
        return _columns_by_table(connection)


def _make(connection: sqlite3.Connection) -> None:
    """Create the tables in one transaction: a kill or a full disk leaves no half-made journal."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
