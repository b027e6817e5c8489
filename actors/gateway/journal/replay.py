"""Reads a journal: requests, their states, and the steps after those states. Damaged rows are skipped."""

from __future__ import annotations

import sqlite3

import structlog

from actors.gateway.journal.records import Recovered, decode_order, decode_states, decode_step
from actors.gateway.requests.request import KEY_BITS


def read_journal(connection: sqlite3.Connection) -> tuple[list[Recovered], list[int]]:
    """Returns every readable request, oldest first, and the numbers of the unreadable ones.

    Raises: sqlite3.DatabaseError when the file itself is damaged.
    """
    found: dict[int, Recovered] = {}
    from_step: dict[int, int] = {}
    unreadable: list[int] = []
    rows = connection.execute("SELECT number, admitted, state, from_step, ended_s FROM requests ORDER BY number")
    for number, admitted, state, start, ended_s in rows:
        if not isinstance(start, int) or not isinstance(ended_s, float | None):  # SQLite stores any type in any column
            unreadable.append(number)
            continue
        try:
            states = decode_states(state) if state else []
            found[number] = Recovered(number, decode_order(admitted), states, ended_s=ended_s)
            from_step[number] = start
        except (ValueError, TypeError):
            unreadable.append(number)
    skipped = 0
    unfinished = [start for number, start in from_step.items() if found[number].ended_s is None]
    if unfinished:
        skipped = _read_steps(connection, min(unfinished), found, from_step)
    if skipped or unreadable:
        structlog.get_logger().error("journal: unreadable rows skipped", rows=skipped + len(unreadable))
    return list(found.values()), unreadable


def _read_steps(connection: sqlite3.Connection, first_step: int, found: dict[int, Recovered], from_step: dict[int, int]) -> int:
    skipped = 0
    for step, blob in connection.execute("SELECT step, record FROM steps WHERE step >= ? ORDER BY step", (first_step,)):
        try:
            record = decode_step(blob)
        except (ValueError, TypeError):
            skipped += 1
            continue
        for row in record.rows:
            number = row.key >> KEY_BITS
            if number in found and found[number].ended_s is None and step >= from_step[number]:
                found[number].steps.append(row)
        for key, ended in record.endings:
            number = key >> KEY_BITS
            if number in found and step >= from_step[number]:
                found[number].endings.setdefault(key, ended)
    return skipped
