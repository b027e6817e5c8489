"""The file of kept answers: what is written is read, damage counts as nothing, and what was forgotten does not come back."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from actors.cache_directory.answers import kept_on_disk
from actors.cache_directory.answers.all_answers import AllAnswers, Answer
from actors.cache_directory.answers.answers_file import read_answers, write_answers
from actors.cache_directory.answers.kept_on_disk import KeptOnDisk
from actors.cache_directory.similar.similar_answers import SimilarAnswer, SimilarAnswers
from actors.pages.answers.answer_cache import AnswerCache
from actors.pages.forgetting import Forgetting
from messages.caches.equal import KeptAnswer, KeptSequence

CIRCLE = b"1" * 16


def equal_answers(n: int) -> list[KeptAnswer]:
    sequence = KeptSequence(ids=b"abcd", reason="stop", n_cached=2)
    starts = (b"\1\0\0\0",)
    return [KeptAnswer(sequences=(sequence,), key=bytes([at] * 16), starts=starts, began_s=4.0, since_s=5.0) for at in range(n)]


def answers(n: int) -> list[SimilarAnswer]:
    rows = np.eye(32, dtype="<f2")
    return [SimilarAnswer(CIRCLE, rows[at].tobytes(), bytes([at] * 4), "length", b"me", b"", 5.0) for at in range(n)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    kept: list[Answer] = [*equal_answers(2), *answers(3)]
    write_answers(path, kept)
    assert read_answers(path) == kept
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "changed", "foreign"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "answers"
    write_answers(path, answers(3))
    data = bytearray(path.read_bytes())
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "short":
            path.write_bytes(data[:-1])
        case "changed":
            data[-3] ^= 1
            path.write_bytes(data)
        case _:
            path.write_bytes(b"x" * 100)
    assert read_answers(path) == []


class Bench:
    """Answers with a file, and their clock."""

    def __init__(self, path: Path) -> None:
        self.now_s, self.path = 10.0, path
        self.answers = SimilarAnswers(1 << 20, 1000.0, self.now_s)
        self.equal = AnswerCache(1 << 20, 1000.0)
        self.disk = KeptOnDisk(AllAnswers(self.equal, self.answers), path, 30.0, lambda: self.now_s)

    async def ticked(self, after_s: float) -> None:
        """A tick at a later time, with all that it begins."""
        self.now_s += after_s
        self.disk.tick()
        await asyncio.gather(*self.disk._tasks)


def files_beside(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.suffix != ".reset"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers"


async def test_the_next_process_finds_the_answers(path: Path) -> None:
    first = Bench(path)
    await first.disk.start()
    for answer in answers(20):
        first.answers.keep(answer, 11.0)
    await first.ticked(29.0)
    assert files_beside(path) == []
    await first.ticked(2.0)
    second = Bench(path)
    await second.disk.start()
    await asyncio.gather(*second.disk._tasks)
    assert [*second.answers] == answers(20)
    second.disk.tick()
    second.now_s += 100.0
    second.disk.tick()
    assert not second.disk._tasks  # there is nothing new


async def test_the_end_of_a_process_writes_the_rest(path: Path) -> None:
    first = Bench(path)
    await first.disk.start()
    first.answers.keep(answers(1)[0], 11.0)
    await first.disk.stop()
    assert read_answers(path) == answers(1)


async def test_an_end_amid_the_reading_loses_nothing(path: Path) -> None:
    write_answers(path, answers(20))
    bench = Bench(path)
    await bench.disk.start()
    bench.answers.keep(answers(21)[20], 11.0)
    await bench.disk.stop()
    assert read_answers(path) == answers(21)


async def test_old_answers_are_not_read(path: Path) -> None:
    write_answers(path, answers(1))
    bench = Bench(path)
    bench.now_s = 2000.0
    await bench.disk.start()
    await asyncio.gather(*bench.disk._tasks)
    assert len(bench.answers) == 0


async def test_what_was_forgotten_does_not_come_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_answers(path, answers(20))
    bench = Bench(path)
    await bench.disk.start()
    assert bench.disk.forget(Forgetting()) == (0, 20)  # none was taken from the file yet
    assert files_beside(path) == []
    await asyncio.gather(*bench.disk._tasks)
    assert len(bench.answers) == 0
    bench.answers.keep(answers(1)[0], bench.now_s + 1.0)

    def slow(to: Path, found: list[SimilarAnswer]) -> None:
        write_answers(to, found)
        loop.call_soon_threadsafe(lambda: bench.disk.forget(Forgetting()))

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(kept_on_disk, "write_answers", slow)
    await bench.ticked(40.0)
    assert files_beside(path) == []


async def test_only_what_began_after_the_last_reset_is_taken_back(path: Path) -> None:
    first = Bench(path)
    await first.disk.start()
    first.now_s = 20.0
    first.disk.forget(Forgetting(scope=b"anybody"))
    second = Bench(path)
    second.now_s = 30.0
    await second.disk.start()
    (answer,) = equal_answers(1)
    assert [second.equal.keep(msgspec.structs.replace(answer, began_s=began_s)) for began_s in (19.0, 20.0, 20.1)] == [
        False,
        False,
        True,
    ]


async def test_without_the_time_of_the_last_reset_nothing_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(28, "no space left")

    (answer,) = equal_answers(1)
    first = Bench(path)
    await first.disk.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        first.disk.forget(Forgetting())
        for now_s in (40.0, 50.0):
            bench = Bench(path)
            bench.now_s = now_s
            await bench.disk.start()
            assert not bench.equal.keep(msgspec.structs.replace(answer, began_s=now_s))
            assert bench.equal.keep(msgspec.structs.replace(answer, began_s=now_s + 0.1))


async def test_a_full_disk_costs_the_file_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(to: Path, found: list[SimilarAnswer]) -> None:
        raise OSError(28, "no space left")

    bench = Bench(path)
    await bench.disk.start()
    bench.answers.keep(answers(1)[0], 11.0)
    monkeypatch.setattr(kept_on_disk, "write_answers", full)
    await bench.ticked(40.0)
    assert len(bench.answers) == 1
    monkeypatch.undo()
    await bench.ticked(40.0)
    assert read_answers(path) == answers(1)


async def test_what_a_disk_does_not_let_go_of_is_forgotten_and_replaced_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    write_answers(path, answers(20))
    bench = Bench(path)
    await bench.disk.start()
    await asyncio.gather(*bench.disk._tasks)
    with monkeypatch.context() as context:
        context.setattr(Path, "unlink", refuse)
        assert bench.disk.forget(Forgetting()) == (0, 20)
    assert len(bench.answers) == 0
    await bench.ticked(1.0)
    assert read_answers(path) == []
