"""A SQLite connection of a journal whose disk refuses writes, fails or hangs when a test says so."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

from actors.gateway.journal.journal import Journal

_LONGEST_WAIT_S = 20.0


class FaultyDisk:
    """Stands between a journal and its SQLite connection. Tests set the attributes; the writer's thread reads them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.trouble: BaseException | None = None  # raised by every BEGIN, or by every COMMIT if `is_late`
        self.is_late = False  # refuse at COMMIT instead of BEGIN
        self.attempts = 0  # transactions begun
        self.gate = threading.Event()  # while it is not set, the writer waits before its next statement
        self.gate.set()

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """As `sqlite3.Connection.execute`, but waits for the gate and raises `trouble`."""
        self.attempts += statement.startswith("BEGIN")
        assert self.gate.wait(_LONGEST_WAIT_S), "the gate stayed shut"
        if self.trouble is not None and statement.startswith("COMMIT" if self.is_late else "BEGIN"):
            raise self.trouble
        return self._connection.execute(statement, values)

    def refuse(self, text: str = "database or disk is full") -> None:
        """Refuse every transaction from now on, as SQLite does with this text."""
        self.trouble = sqlite3.OperationalError(text)

    def recover(self) -> None:
        """Accept transactions again."""
        self.trouble = None

    @property
    def in_transaction(self) -> bool:
        """As `sqlite3.Connection.in_transaction`."""
        return self._connection.in_transaction

    def close(self) -> None:
        """As `sqlite3.Connection.close`."""
        self._connection.close()


def replace_disk(journal: Journal) -> FaultyDisk:
    """Replace the connection of a journal, before or after its start; returns the new disk."""
    disk = FaultyDisk(journal._connection)
    journal._connection = disk  # pyright: ignore[reportAttributeAccessIssue]
    if journal._writer is not None:
        journal._writer._connection = disk  # pyright: ignore[reportAttributeAccessIssue]
    return disk
