"""Callers take turns in threads: none has all of them, and what its client has left takes none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from actors.gateway.caller_threads import CallerThreads
from tests.support.waiting import DEADLINE_S, until


class Work:
    """Pieces of work that note when they begin, and end when they may."""

    def __init__(self) -> None:
        self.begun, self.may_end = list[str](), threading.Semaphore(0)

    def of(self, name: str) -> Callable[[], str]:
        """A piece with this name."""

        def work() -> str:
            self.begun.append(name)
            assert self.may_end.acquire(timeout=DEADLINE_S)
            return name

        return work


def ask(threads: CallerThreads, work: Work, name: str) -> asyncio.Task[str]:
    return asyncio.ensure_future(threads.run(name[:1].encode(), work.of(name)))


async def test_callers_take_turns() -> None:
    threads, work = CallerThreads(1, "test"), Work()
    calls = [ask(threads, work, name) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
    for _ in calls:
        work.may_end.release()
    assert await asyncio.gather(*calls) == ["a1", "a2", "a3", "b1", "b2", "c1"]
    assert work.begun == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_one_thread_is_left_for_the_next_caller() -> None:
    threads, work = CallerThreads(3, "test"), Work()
    calls = [ask(threads, work, f"a{number}") for number in range(5)]
    await until(lambda: len(work.begun) == 2)
    calls.append(ask(threads, work, "b"))
    await until(lambda: "b" in work.begun)
    for _ in calls:
        work.may_end.release()
    assert len(await asyncio.gather(*calls)) == 6


async def test_what_has_been_left_takes_no_turn_and_no_thread_for_ever() -> None:
    threads, work = CallerThreads(1, "test"), Work()
    running, waiting, last = (ask(threads, work, name) for name in ("a1", "a2", "a3"))
    await until(lambda: work.begun == ["a1"])
    running.cancel()
    waiting.cancel()
    await asyncio.sleep(0)
    assert work.begun == ["a1"], "its thread still runs"
    work.may_end.release()
    work.may_end.release()
    assert await last == "a3"
    assert work.begun == ["a1", "a3"]


async def test_errors_reach_the_caller() -> None:
    threads = CallerThreads(1, "test")

    def fail() -> None:
        raise ValueError("no text")

    for _ in range(2):
        with pytest.raises(ValueError, match="no text"):
            await threads.run(b"a", fail)


async def test_a_thread_that_cannot_be_started_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = CallerThreads(1, "test")

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threads._threads, "submit", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await threads.run(b"a", lambda: 1)
    assert await threads.run(b"a", lambda: 1) == 1
