"""Reads a journal: requests, their states, and the steps after those states. Damaged rows are skipped.

A request whose tokens stood in a damaged step keeps the tokens before it. The later ones are left out and are computed again,
with the seed of its order, so they are the same.
"""

from __future__ import annotations

import sqlite3

import structlog

from actors.gateway.journal.records import Recovered, StepRow, decode_order, decode_states, decode_step
from actors.gateway.requests.order import Ended
from actors.gateway.requests.request import KEY_BITS, PING_TURN
from messages.outcomes import EndReason

_ENDS_WITH_A_TOKEN: tuple[EndReason, ...] = ("stop", "length")


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
    steps = _Steps(found, from_step)
    steps.read(connection)
    if steps.n_unreadable or unreadable:
        structlog.get_logger().error("journal: unreadable rows skipped", rows=steps.n_unreadable + len(unreadable))
    if steps.damaged:
        structlog.get_logger().error("journal: lost tokens are computed again", requests=sorted(steps.damaged))
    return list(found.values()), unreadable


class _Steps:
    """Adds the rows and endings of steps to the requests in `found`. `from_step`: the first step of each, by its number."""

    def __init__(self, found: dict[int, Recovered], from_step: dict[int, int]) -> None:
        self._found, self._from_step = found, from_step
        states = [state for request in found.values() for state in request.states]
        self._n_tokens = {state.row.key: state.row.first + len(state.row.ids) // 4 for state in states}  # read, by sequence
        self._lacks_tokens: set[int] = set()  # keys of sequences with a later row that cannot be appended
        self.n_unreadable = 0  # steps
        self.damaged: set[int] = set()  # numbers of requests that have lost tokens

    def read(self, connection: sqlite3.Connection) -> None:
        """Read all steps that an unfinished request needs."""
        unfinished = [start for number, start in self._from_step.items() if self._found[number].ended_s is None]
        if not unfinished:
            return
        rows = connection.execute("SELECT step, record FROM steps WHERE step >= ? ORDER BY step", (min(unfinished),))
        for step, blob in rows:
            try:
                record = decode_step(blob)
            except (ValueError, TypeError):
                self.n_unreadable += 1
                continue
            for row in record.rows:
                self._add_row(step, row)
            for key, ended in record.endings:
                self._add_ending(step, key, ended)

    def _add_row(self, step: int, row: StepRow) -> None:
        number, index = row.key >> KEY_BITS, row.key & ((1 << KEY_BITS) - 1)
        request = self._found.get(number)
        if request is None or request.ended_s is not None or step < self._from_step[number]:
            return
        if index == PING_TURN and not row.ids:
            request.steps.append(row)
            return
        n_tokens = self._n_tokens.get(row.key, 0)
        if index >= request.order.n_sequences or len(row.ids) % 4 or not 0 <= row.first <= n_tokens:
            self._lacks_tokens.add(row.key)
            self.damaged.add(number)
            return
        self._n_tokens[row.key] = max(n_tokens, row.first + len(row.ids) // 4)
        self._lacks_tokens.discard(row.key)  # a later incarnation has computed them again
        request.steps.append(row)

    def _add_ending(self, step: int, key: int, ended: Ended) -> None:
        number = key >> KEY_BITS
        if number not in self._found or step < self._from_step[number]:
            return
        if key in self._lacks_tokens and ended.reason in _ENDS_WITH_A_TOKEN:
            return  # the ending comes again with the tokens
        self._found[number].endings.setdefault(key, ended)
        self._found[number].steps.append(StepRow(key, self._n_tokens.get(key, 0), b""))
