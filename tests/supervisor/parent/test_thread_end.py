"""The end of a process is noticed when its threads end, while its memory is still being freed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest

from supervisor.children.process import ExitStatus, LocalProcess
from supervisor.parent.thread_end import ThreadEnd
from tests.support.waiting import DEADLINE_S

_PROGRAM = """
import os, sys, time, zmq
context = zmq.Context()
socket = context.socket(zmq.PULL)  # makes the thread
import ctypes
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages are freed at once
memory = bytearray(800 << 20)
for page in range(0, len(memory), 4096):
    memory[page] = 1
sys.stdin.buffer.raw.read(1)
os.write(WRITER, b"up")
sys.stdin.buffer.raw.read()
if "%s" == "ends":
    socket.close(); context.term(); os._exit(0)
time.sleep(600)
"""


def _has_thread_descriptors() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid(), os.O_EXCL))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _has_thread_descriptors(), reason="the kernel has no pidfd of a thread (Linux 6.9)")


class _Child:
    def __init__(self, process: LocalProcess) -> None:
        loop = asyncio.get_running_loop()
        self.process, self.events = process, list[tuple[str, ExitStatus | None, float]]()
        self.ended: asyncio.Future[None] = loop.create_future()
        process.on_ending = lambda status: self.events.append(("ending", status, loop.time()))
        process.on_exit = self._on_exit

    def _on_exit(self, status: ExitStatus) -> None:
        self.events.append(("exit", status, asyncio.get_running_loop().time()))
        self.ended.set_result(None)


@pytest.fixture
async def started(request: pytest.FixtureRequest) -> AsyncIterator[_Child]:
    """A process that has 800 MiB and threads of ZeroMQ."""
    reader, writer = os.pipe()
    process = LocalProcess.spawn(
        [sys.executable, "-c", f"WRITER = {writer}\n" + _PROGRAM % request.param], lambda status: None,
        pass_fds=[writer],
    )  # fmt: skip
    os.close(writer)
    child = _Child(process)
    try:
        process._stdin.sendall(b"x")  # its spawn spec ends later
        assert await asyncio.wait_for(asyncio.to_thread(os.read, reader, 16), DEADLINE_S) == b"up"
        yield child
    finally:
        process.kill()
        os.close(reader)


@pytest.mark.parametrize("started", ["lasts"], indirect=True)
async def test_a_killed_process_tells_its_end_before_its_memory_is_free(started: _Child) -> None:
    started.process.watch_threads()
    started.process.kill()
    await asyncio.wait_for(started.ended, DEADLINE_S)
    assert [kind for kind, _, _ in started.events] == ["ending", "exit"], "told once"
    (_, status, early_s), (_, _, late_s) = started.events
    assert status is not None
    assert status.signal_name == "SIGKILL"
    assert late_s - early_s > 0.005, "800 MiB are not freed in less"


@pytest.mark.parametrize("started", ["ends"], indirect=True)
async def test_a_process_that_ends_by_itself_is_told_by_its_standard_input(started: _Child) -> None:
    started.process.watch_threads()
    started.process.send_spawn_spec(b"")
    await asyncio.wait_for(started.ended, DEADLINE_S)
    assert [kind for kind, _, _ in started.events] == ["ending", "exit"]
    assert started.events[1][1] == ExitStatus(0, "")


async def test_a_process_without_such_a_thread_tells_nothing() -> None:
    told: list[bool] = []
    end = ThreadEnd(os.getppid(), lambda: told.append(True))
    end.close()
    end.close()
    assert not told
