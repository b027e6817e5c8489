"""A journal connection whose disk refuses, or breaks, on demand. Set `trouble` from the test's thread; the writer meets it."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

from actors.gateway.journal.journal import Journal

_LONGEST_WAIT_S = 20.0


class MoodyDisk:
    """Stands between a journal and its SQLite connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.trouble: BaseException | None = None
        self.is_late = False  # refuse at COMMIT instead of BEGIN
        self.attempts = 0
        self.gate = threading.Event()  # shut: the writer waits at its next commit
        self.gate.set()

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """As sqlite3's, unless there is trouble."""
        self.attempts += statement.startswith("BEGIN")
        assert self.gate.wait(_LONGEST_WAIT_S), "the gate stayed shut"
        if self.trouble is not None and statement.startswith("COMMIT" if self.is_late else "BEGIN"):
            raise self.trouble
        return self._connection.execute(statement, values)

    def refuse(self, text: str = "database or disk is full") -> None:
        """From now on every commit is refused."""
        self.trouble = sqlite3.OperationalError(text)

    def recover(self) -> None:
        """All is well again."""
        self.trouble = None

    @property
    def in_transaction(self) -> bool:
        """As sqlite3's."""
        return self._connection.in_transaction

    def close(self) -> None:
        """As sqlite3's."""
        self._connection.close()


def put_under(journal: Journal) -> MoodyDisk:
    """Give a journal such a disk, before or after its start."""
    disk = MoodyDisk(journal._connection)
    journal._connection = disk  # pyright: ignore[reportAttributeAccessIssue]
    if journal._writer is not None:
        journal._writer._connection = disk  # pyright: ignore[reportAttributeAccessIssue]
    return disk
