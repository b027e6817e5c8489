"""The journal: written, read again, bounded; a killed writer loses nothing it was told of."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import (
    FinishRecord,
    RequestRecord,
    SequenceState,
    StepRow,
    encode_record,
    encode_spec,
    encode_states,
    encode_step,
)
from actors.gateway.journal.restore import restore, restore_finished
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.models.hash_chain_text import HashChainText
from tests.support.gateway.journal_file import (
    IDENTITY,
    SERVED,
    files_in,
    finish_blob,
    key,
    opened,
    read_again,
    request_blob,
    unwanted,
    written,
)
from tests.support.gateway.journal_writer import N_REQUESTS, row_at, spec_of, token_of

DEADLINE_S = 60.0
MODEL = HashChainText()


async def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    journal, said = opened(tmp_path / "journal"), []
    for number in (1, 2, 3):
        journal.admission(number, request_blob(spec_of(number)), lambda number=number: said.append(number), unwanted)
    journal.step(encode_step([row_at(1, 0), row_at(2, 0)], []), lambda: said.append("a"))
    journal.step(encode_step([row_at(1, 1)], [(key(2), Ended(reason="stop", n_cached=3))]), lambda: said.append("b"))
    journal.finish(2, finish_blob(SequenceState(row_at(2, 0), Ended(reason="stop", n_cached=3))))
    journal.delete(3)
    await written(journal)
    assert said == [1, 2, 3, "a", "b"]
    await journal.close()
    again = Journal(str(tmp_path / "journal"))
    (recovered,), (finished,) = again.open(), again.finished
    assert (recovered.number, finished.number, again.next_number) == (1, 2, 4)
    one = restore(recovered, MODEL, 0.0)
    two = restore_finished(finished.number, finished.record, SERVED, 0.0)
    assert one.sequences[0].ids == [token_of(1, 0), token_of(1, 1)]
    assert (one.is_over, one.spec) == (False, spec_of(1))
    assert two.sequences[0].ids == [token_of(2, 0)]
    assert two.sequences[0].ended == Ended(reason="stop", n_cached=3)
    assert (two.is_over, two.spec) == (True, spec_of(2))
    await again.close()
    assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path / "journal")} == {0o600}
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700


async def test_an_exception_of_one_callback_drops_none_of_the_others(tmp_path: Path) -> None:
    """All entries of one turn of the event loop are one commit; the requests behind the failed one would wait for ever."""
    loop, journal, said, reported = asyncio.get_running_loop(), opened(tmp_path / "journal"), list[str](), list[object]()
    loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    errors = KeyError("a commit"), ValueError("a request"), RuntimeError("those who wait")

    def fail(error: Exception) -> None:
        raise error

    journal.on_commit = lambda took_s: fail(errors[0])
    journal.on_answered = lambda: fail(errors[2])
    journal.step(b"", lambda: said.append("before"))
    journal.step(b"", lambda: fail(errors[1]))
    journal.step(b"", lambda: said.append("behind"))
    await written(journal)
    assert (said, reported) == (["before", "behind"], list(errors))
    await journal.close()


async def test_a_whole_record_stands_for_everything_before_it(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    for at in range(10):
        journal.step(encode_step([row_at(1, at)], []), lambda: None)
    ids = b"".join(row_at(1, at).ids for at in range(10))
    journal.request(1, request_blob(spec_of(1), SequenceState(StepRow(key(1), 0, ids))))
    for at in range(10, 13):
        journal.step(encode_step([row_at(1, at)], []), lambda: None)
    await journal.close()
    (recovered,) = await read_again(tmp_path / "journal")
    assert [(row.first, len(row.ids) // 4) for row in recovered.steps] == [(10, 3)]
    assert restore(recovered, MODEL, 0.0).sequences[0].ids == [token_of(1, at) for at in range(13)]


class FakeManager:
    """Answers what a journal asks: request 1 waits, request 2 is kept until there are 500, all others are gone."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.asked: set[int] = set()
        finish = FinishRecord(encode_states([SequenceState(row_at(2, 0), Ended(reason="stop"))]), 1, False, 5.0)
        self.kept = encode_record(RequestRecord("r2", IDENTITY, encode_spec(spec_of(2)), finish=finish))

    def write_again(self, numbers: list[int]) -> None:
        self.asked |= set(numbers)
        for number in numbers:
            if number == 1:
                self._journal.request(1, request_blob(spec_of(1)))
            elif number == 2 and self._journal.next_number <= 500:
                self._journal.answer(2, self.kept)
            else:
                self._journal.delete(number)


async def test_the_files_stay_bounded_and_numbers_never_begin_again(tmp_path: Path) -> None:
    """Many requests come and go while one waits, and another one is kept: all that is old is deleted."""
    path = tmp_path / "journal"
    journal = Journal(str(path), segment_bytes=4096)
    journal.open()
    manager = FakeManager(journal)
    journal.on_pinned = manager.write_again
    journal.start()
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    journal.answer(2, manager.kept)
    for number in range(3, 600):
        journal.admission(number, request_blob(spec_of(number)), lambda: None, unwanted)
        for at in range(5):
            journal.step(encode_step([row_at(number, at)], []), lambda: None)
        journal.finish(number, finish_blob(SequenceState(row_at(number, 0))))
        journal.delete(number)
        if number % 20 == 0:
            await written(journal)
            await asyncio.sleep(0)  # what was asked meanwhile has been put
    await written(journal)
    await written(journal)
    await journal.close()
    n_bytes = sum(file.stat().st_size for file in files_in(path))
    assert n_bytes < 25 * 4096, "several times as much has been written"
    assert {1, 2} <= manager.asked
    again = Journal(str(path))
    assert [one.number for one in again.open()] == [1]
    assert (again.next_number, again.finished) == (600, [])
    await again.close()


async def test_requests_larger_than_a_file_are_not_written_again_and_again(tmp_path: Path) -> None:
    """A file has room for all unfinished requests. Otherwise writing them again would fill the files that ask for it again."""
    journal, asked = Journal(str(tmp_path / "journal"), segment_bytes=1000), list[int]()
    journal.open()

    def write_again(numbers: list[int]) -> None:
        asked.extend(numbers)
        for number in numbers:
            journal.request(number, request_blob(spec_of(number)))

    journal.on_pinned = write_again
    journal.start()
    n, n_steps = 40, 200
    for number in range(1, n + 1):
        journal.admission(number, request_blob(spec_of(number)), lambda: None, unwanted)
    n_bytes = sum(len(request_blob(spec_of(number))) for number in range(1, n + 1))
    step = encode_step([row_at(1, 0)], [])
    for _ in range(n_steps):
        journal.step(step, lambda: None)
        await written(journal)
    await journal.close()
    most = 2 * n_steps * len(step) // n_bytes + 2
    assert len(asked) <= most * n, f"each was written again {len(asked) / n} times, expected at most {most}"


async def test_a_place_that_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    await written(journal)
    with pytest.raises(BlockingIOError, match="another process holds this journal"):
        Journal(str(path), lock_wait_s=0.01).open()
    await journal.close()
    assert [r.number for r in await read_again(path)] == [1]


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
    recovered = {r.number: r for r in await read_again(path)}
    assert set(admitted) <= set(recovered)
    for number in recovered:
        ids = restore(recovered[number], MODEL, 0.0).sequences[0].ids
        assert len(ids) >= n_steps
        assert ids == [token_of(number, at) for at in range(len(ids))], "a prefix without a hole"
    assert n_steps == 0 or len(recovered) == N_REQUESTS
