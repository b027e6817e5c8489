"""The journal: written, read again, bounded; a killed writer loses nothing it was told of."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.journal.journal import _SCHEMA, Journal, _make
from actors.gateway.journal.records import SequenceState, StepRow, encode_order, encode_states, encode_step
from actors.gateway.journal.restore import restore
from actors.gateway.requests.order import Ended
from actors.gateway.text.tokenizer import HashChainText
from tests.support.gateway.journal_file import key, moved_aside, opened, unwanted, written
from tests.support.gateway.journal_writer import N_REQUESTS, order_of, row_at, token_of

DEADLINE_S = 20.0
MODEL = HashChainText()


async def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    journal, said = opened(tmp_path / "journal"), []
    for number in (1, 2, 3):
        journal.admit(number, encode_order(order_of(number)), lambda number=number: said.append(number), unwanted)
    journal.step(encode_step([row_at(1, 0), row_at(2, 0)], []), lambda: said.append("a"))
    journal.step(encode_step([row_at(1, 1)], [(key(2), Ended(reason="stop", n_cached=3))]), lambda: said.append("b"))
    journal.finish(2, encode_states([SequenceState(row_at(2, 0), Ended(reason="stop", n_cached=3))]), 77.0)
    journal.delete(3)
    await written(journal)
    assert said == [1, 2, 3, "a", "b"]
    await journal.close()
    again = Journal(str(tmp_path / "journal"))
    recovered = {r.number: r for r in again.open()}
    assert sorted(recovered) == [1, 2]
    one, two = restore(recovered[1], MODEL, 0.0), restore(recovered[2], MODEL, 0.0)
    assert one.sequences[0].ids == [token_of(1, 0), token_of(1, 1)]
    assert (one.is_over, one.order) == (False, order_of(1))
    assert two.sequences[0].ids == [token_of(2, 0)]
    assert two.sequences[0].ended == Ended(reason="stop", n_cached=3)
    assert (two.is_over, recovered[2].ended_s) == (True, 77.0)
    await again.close()
    assert stat.S_IMODE(os.stat(tmp_path / "journal").st_mode) == 0o600


async def test_a_checkpoint_stands_for_the_steps_before_it(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    for at in range(10):
        journal.step(encode_step([row_at(1, at)], []), lambda: None)
    ids = b"".join(row_at(1, at).ids for at in range(10))
    journal.checkpoint(1, encode_states([SequenceState(StepRow(key(1), 0, ids))]))
    for at in range(10, 13):
        journal.step(encode_step([row_at(1, at)], []), lambda: None)
    journal.prune(0.0)
    await written(journal)
    assert _count(journal, "steps") == 3
    await journal.close()
    again = Journal(str(tmp_path / "journal"))
    assert restore(again.open()[0], MODEL, 0.0).sequences[0].ids == [token_of(1, at) for at in range(13)]
    await again.close()


async def test_pruning_bounds_the_file_and_numbers_never_begin_again(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    for number in range(1, 30):
        journal.admit(number, encode_order(order_of(number)), lambda: None, unwanted)
        for at in range(5):
            journal.step(encode_step([row_at(number, at)], []), lambda: None)
        journal.finish(number, encode_states([]), float(number))
        journal.prune(number - 2.0)
        await written(journal)
        assert _count(journal, "steps") <= 1
        assert _count(journal, "requests") <= 3
    assert journal._connection.execute("SELECT max(step) FROM steps").fetchone()[0] == 29 * 5
    await journal.close()


def _count(journal: Journal, table: str) -> int:
    return journal._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


async def test_a_place_that_cannot_be_used_now_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    await written(journal)
    await journal.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    late = Journal(str(path), lock_wait_s=0.01)
    with pytest.raises(sqlite3.OperationalError):
        late.open()
    other.execute("COMMIT")
    other.close()
    assert [r.number for r in late.open()] == [1]
    await late.close()
    assert moved_aside(tmp_path) == []


def write_and_kill(path: Path, n_lines: int) -> list[str]:
    """A real process writes until it has said so many lines; returns all that it said."""
    command = [sys.executable, "-m", "tests.support.gateway.journal_writer", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4], text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(n_lines)]
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.read().splitlines()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
        return said


@pytest.mark.parametrize("kill_after_lines", [1, 60, 400])
async def test_a_killed_writer_loses_nothing_that_was_called_back(tmp_path: Path, kill_after_lines: int) -> None:
    path = tmp_path / "journal"
    said = await asyncio.to_thread(write_and_kill, path, kill_after_lines)
    words = [line.split() for line in said if line]
    admitted = [int(w[1]) for w in words if w[0] == "admitted"]
    n_steps = 1 + max((int(w[1]) for w in words if w[0] == "step" and len(w) == 2), default=-1)
    journal = Journal(str(path))
    recovered = {r.number: r for r in journal.open()}
    assert set(admitted) <= set(recovered)
    for number in recovered:
        ids = restore(recovered[number], MODEL, 0.0).sequences[0].ids
        assert len(ids) >= n_steps
        assert ids == [token_of(number, at) for at in range(len(ids))], "a prefix without a hole"
    assert n_steps == 0 or len(recovered) == N_REQUESTS
    await journal.close()


@pytest.mark.parametrize("at", range(len(_SCHEMA)))
def test_a_journal_is_made_whole_or_not_at_all(tmp_path: Path, at: int) -> None:
    path, done = tmp_path / "journal", []

    class Refusing(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:  # pyright: ignore[reportIncompatibleMethodOverride]
            if statement == _SCHEMA[at]:
                raise sqlite3.OperationalError("database or disk is full")
            done.append(statement)
            return super().execute(statement, *values)

    connection = sqlite3.connect(path, isolation_level=None, factory=Refusing)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        _make(connection)
    connection.close()
    assert done[-1] == "ROLLBACK"
    with contextlib.closing(sqlite3.connect(path)) as seen:
        assert seen.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        assert seen.execute("PRAGMA user_version").fetchone() == (0,)


@pytest.mark.parametrize("missing", ["requests", "steps"])
async def test_a_journal_left_half_made_is_completed(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "journal"
    await opened(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"DROP TABLE {missing}")
    journal = opened(path)
    journal.admit(1, encode_order(order_of(1)), lambda: None, unwanted)
    journal.step(encode_step([row_at(1, 0)], []), lambda: None)
    await written(journal)
    await journal.close()
    again = Journal(str(path))
    assert [one.number for one in again.open()] == [1]
    await again.close()
    assert not any("unreadable" in name for name in os.listdir(tmp_path))
