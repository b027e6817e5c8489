"""A journal whose disk refuses: nothing is lost or out of order, nothing new is promised, and nobody waits in silence."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.journal import segment_log
from actors.gateway.journal.backlog import Backlog, PendingFrame
from actors.gateway.journal.frames import Kind
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import encode_step
from actors.gateway.journal.restore import restore
from actors.gateway.text.models.hash_chain_text import HashChainText
from tests.support.gateway.faulty_disk import replace_disk
from tests.support.gateway.journal_file import files_in, read_again, request_blob, unwanted
from tests.support.gateway.journal_writer import row_at, spec_of, token_of
from tests.support.waiting import until


def opened(path: Path, **options: int) -> Journal:
    journal = Journal(str(path), **options)  # pyright: ignore[reportArgumentType]
    journal.open()
    return journal


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 300), st.booleans()),
            st.tuples(st.just("refused"), st.just(0), st.just(False)),
            st.tuples(st.just("recorded"), st.integers(1, 9), st.just(False)),
        ),
        max_size=60,
    ),
    st.integers(1, 2000),
)
def test_every_caller_is_answered_once_and_what_is_recorded_is_in_order(acts: list, limit_bytes: int) -> None:
    backlog, said, recorded, withdrawn, n_put = Backlog(limit_bytes), [], [], [], 0
    for act, value, is_promise in acts:
        if act == "add":
            n, n_put = n_put, n_put + 1
            refuse = (lambda n=n: withdrawn.append(n)) if is_promise else None
            backlog.add([PendingFrame(Kind.STEP, n, b"x" * value, lambda n=n: said.append(n), refuse)])
            continue
        calls = backlog.refused() if act == "refused" else []
        if act == "recorded":
            batch = backlog.first(value)
            recorded += [entry.number for entry in batch]
            calls = backlog.recorded(len(batch))
        for call in calls:
            call()
        assert backlog.n_bytes <= limit_bytes
    while batch := backlog.first(7):
        recorded += [entry.number for entry in batch]
        for call in backlog.recorded(len(batch)):
            call()
    assert recorded == sorted(recorded)
    assert sorted(recorded + withdrawn) == list(range(n_put))
    assert said == recorded, "each once, in order, whether from memory or from the disk"
    assert (len(backlog), backlog.n_bytes) == (0, 0)


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_runs_goes_on_from_memory_and_lands_when_the_disk_recovers(tmp_path: Path, is_late: bool) -> None:
    journal = opened(tmp_path / "journal")
    disk, said = replace_disk(journal), []
    journal.start()
    journal.admission(1, request_blob(spec_of(1)), lambda: said.append("one"), lambda: said.append("not one"))
    await until(lambda: said == ["one"])
    disk.is_late = is_late
    disk.refuse()
    for at in range(50):
        journal.step(encode_step([row_at(1, at)], []), lambda at=at: said.append(at))
    await until(lambda: len(said) == 51)
    assert (said, str(journal.state)) == (["one", *range(50)], "refuses writes")
    assert journal.state.waiting_bytes > 50
    disk.recover()
    await until(lambda: journal.is_healthy)
    assert journal.state.waiting_bytes == 0
    await journal.close()
    (recovered,) = await read_again(tmp_path / "journal")
    assert restore(recovered, HashChainText(), 0.0).sequences[0].ids == [token_of(1, at) for at in range(50)]


async def test_a_promise_is_not_kept_for_later(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    disk, said = replace_disk(journal), []
    disk.refuse()
    journal.start()
    for number in (1, 2):
        journal.admission(number, request_blob(spec_of(number)), lambda: said.append("yes"), lambda n=number: said.append(n))
    await until(lambda: said == [1, 2])
    journal.step(b"", lambda: said.append("rest"))
    journal.admission(3, request_blob(spec_of(3)), lambda: said.append("yes"), lambda: said.append(3))
    await until(lambda: 3 in said)
    disk.recover()
    await until(lambda: len(said) == 4)
    await until(lambda: journal.is_healthy)
    journal.admission(4, request_blob(spec_of(4)), lambda: said.append("four"), lambda: said.append("not four"))
    await until(lambda: said[-1] == "four")
    await journal.close()
    assert [r.number for r in await read_again(tmp_path / "journal")] == [4]


async def test_answers_wait_when_the_buffer_is_full(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal", buffer_bytes=3000)
    disk, said = replace_disk(journal), []
    disk.refuse()
    journal.start()
    for at in range(50):
        journal.step(encode_step([row_at(1, at)], []), lambda at=at: said.append(at))
    await until(lambda: journal.state.is_full)
    assert 0 < len(said) < 50
    assert str(journal.state) == "refuses writes, buffer full"
    n_attempts = disk.attempts
    await until(lambda: disk.attempts > n_attempts + 1)
    assert len(said) < 50, "tried again in vain"
    disk.recover()
    await until(lambda: said == list(range(50)))
    assert journal.is_healthy
    await journal.close()


@pytest.mark.parametrize("error", [MemoryError("none left"), KeyError("a bug")])
async def test_any_other_trouble_is_told_at_once(tmp_path: Path, error: BaseException) -> None:
    journal, told = opened(tmp_path / "journal"), []
    replace_disk(journal).trouble = error
    journal.on_failure = told.append
    journal.start()
    journal.step(b"", lambda: told.append("done"))
    await until(lambda: bool(told))
    assert told == [error]
    await journal.close()


async def test_a_disk_that_takes_its_time_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit of many entries may last long: each call of the system has its own time."""
    monkeypatch.setattr(segment_log, "_WRITE_BYTES", 64)
    journal, told, calls = opened(tmp_path / "journal"), [], []
    disk = replace_disk(journal)
    disk.gate.clear()
    journal.start()
    writer, begin = journal._writer, journal._files.on_call
    assert writer is not None

    def call_begins() -> None:
        writer._busy_since_s = -1.0
        begin()
        calls.append(writer._busy_since_s)

    journal._files.on_call = call_begins
    for number in range(1, 61):
        journal.admission(
            number, request_blob(spec_of(number)), lambda: told.append("admitted"), lambda: told.append("withdrawn")
        )
    disk.gate.set()
    await until(lambda: len(told) == 60)
    assert set(told) == {"admitted"}
    assert len(calls) > 60
    assert all(since_s > 0.0 for since_s in calls)
    assert writer._busy_since_s == 0.0
    await journal.close()


async def test_a_journal_that_is_full_can_be_taken_over(tmp_path: Path) -> None:
    """A gateway that restarts while the disk refuses reads what is there; opening writes nothing."""
    journal = opened(tmp_path / "journal")
    journal.start()
    journal.admission(1, request_blob(spec_of(1)), lambda: None, unwanted)
    await journal.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "journal").iterdir()}
    assert [r.number for r in await read_again(tmp_path / "journal")] == [1]
    assert {path.name: path.read_bytes() for path in (tmp_path / "journal").iterdir()} == before


async def test_a_file_that_the_disk_cannot_write_is_left_for_another_one(tmp_path: Path) -> None:
    journal, said = opened(tmp_path / "journal"), []
    disk = replace_disk(journal)
    journal.start()
    journal.admission(1, request_blob(spec_of(1)), lambda: said.append("one"), unwanted)
    await until(lambda: said == ["one"])
    disk.is_late = True
    disk.refuse(errno.EIO)
    for at in range(9):
        journal.step(encode_step([row_at(1, at)], []), lambda at=at: said.append(at))
    await until(lambda: not journal.is_healthy)
    disk.recover()
    await until(lambda: journal.is_healthy)
    await journal.close()
    assert len(files_in(tmp_path / "journal")) == 2
    (recovered,) = await read_again(tmp_path / "journal")
    assert restore(recovered, HashChainText(), 0.0).sequences[0].ids == [token_of(1, at) for at in range(9)]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_a_process_that_can_open_no_file_goes_on_in_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    journal, said = opened(tmp_path / "journal", segment_bytes=1000), []
    journal.start()
    journal.admission(1, request_blob(spec_of(1)), lambda: said.append("one"), unwanted)
    await until(lambda: said == ["one"])
    usual, refused = os.open, []

    def refusing(path: os.PathLike | str, flags: int, *more: int) -> int:
        if flags & os.O_EXCL:
            refused.append(path)
            raise OSError(number, os.strerror(number))
        return usual(path, flags, *more)

    with monkeypatch.context() as patched:
        patched.setattr(segment_log.os, "open", refusing)
        for at in range(60):
            journal.step(encode_step([row_at(1, at)], []), lambda at=at: said.append(at))
            await until(lambda at=at: at in said)
        assert refused
        assert journal.is_healthy
        assert len(files_in(tmp_path / "journal")) == 1
    journal.step(encode_step([row_at(1, 60)], []), lambda: said.append(60))
    await until(lambda: 60 in said)
    assert len(files_in(tmp_path / "journal")) == 2
    await journal.close()
    (recovered,) = await read_again(tmp_path / "journal")
    assert restore(recovered, HashChainText(), 0.0).sequences[0].ids == [token_of(1, at) for at in range(61)]


_TINY_DISK = """
import asyncio, resource, sys
from pathlib import Path
from actors.gateway.journal.frames import Kind
from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import encode_step
from tests.support.gateway.journal_file import request_blob
from tests.support.gateway.journal_writer import spec_of, row_at

async def main(path):
    journal, said, n = Journal(path), [], 0
    journal.open()
    journal.start()
    journal.admission(1, request_blob(spec_of(1)), lambda: said.append("one"), lambda: said.append("refused"))
    async with asyncio.timeout(60.0):
        while not said:
            await asyncio.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        for n in range(3000):
            journal.step(encode_step([row_at(1, n)], []), lambda n=n: said.append(n))
        while len(said) < 3001:
            assert journal.is_healthy, "other files have room"
            await asyncio.sleep(0.001)
        assert len(list(Path(path).iterdir())) > 3
        n, said = 3000, said[:1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        while journal.is_healthy:
            journal.step(encode_step([row_at(1, n)], []), lambda: None)
            n += 1
            await asyncio.sleep(0)
        for n in range(n, n + 100):
            journal.step(encode_step([row_at(1, n)], []), lambda: None)
        journal.admission(2, request_blob(spec_of(2)), lambda: said.append("two"), lambda: said.append("refused"))
        while len(said) < 2:
            await asyncio.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        while not journal.is_healthy:
            await asyncio.sleep(0.001)
    await journal.close()
    print(n + 1, said[1])

asyncio.run(main(sys.argv[1]))
"""


async def test_files_that_may_not_be_larger_and_a_disk_that_is_really_full_for_a_while(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TINY_DISK, str(tmp_path / "journal")]
    run = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[4], check=False
    )
    assert run.returncode == 0, run.stderr
    n_tokens, said = run.stdout.split()[-2:]
    assert (int(n_tokens) > 100, said) == (True, "refused")
    (recovered,) = await read_again(tmp_path / "journal")
    ids = restore(recovered, HashChainText(), 0.0).sequences[0].ids
    assert ids == [token_of(1, at) for at in range(int(n_tokens))]
