"""What a child does when its supervisor has died: the process that starts the next one must run."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.lifecycle import supervisor_watch
from messages.lifecycle.supervisor_watch import SupervisorWatch, continue_if_stopped
from tests.support.waiting import until

Sleeper = subprocess.Popen[bytes]


def state(process: Sleeper) -> bytes:
    """Its state in /proc."""
    return Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]


async def stop(process: Sleeper) -> None:
    """Stop it from outside."""
    process.send_signal(signal.SIGSTOP)
    await until(lambda: state(process) == b"T")


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sleeper]:
    """The parent of this process, as far as this process knows."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        monkeypatch.setattr(os, "getppid", lambda: process.pid)
        monkeypatch.setattr(supervisor_watch, "_POLL_S", 0.01)
        yield process
        process.kill()


def dead_process() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


async def test_a_stopped_parent_is_told_to_continue_until_there_is_a_next_supervisor(parent: Sleeper) -> None:
    watch = SupervisorWatch(1000.0, lambda: None)
    watch.watch(dead_process())
    for _ in range(2):
        parent.send_signal(signal.SIGSTOP)
        await until(lambda: os.waitid(os.P_PID, parent.pid, os.WCONTINUED | os.WNOHANG))
    watch.watch(os.getpid())  # the next supervisor
    await stop(parent)
    await asyncio.sleep(0)
    watch.close()
    assert state(parent) == b"T", "somebody wants it to stand still, and nobody needs it"


async def test_the_parent_of_a_supervisor_that_lives_is_left_alone(parent: Sleeper) -> None:
    watch = SupervisorWatch(1000.0, lambda: None)
    watch.watch(os.getpid())
    await stop(parent)
    watch.close()
    assert state(parent) == b"T"


def test_a_process_that_does_not_exist_is_not_told_anything() -> None:
    continue_if_stopped(dead_process())
