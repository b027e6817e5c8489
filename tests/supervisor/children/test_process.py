"""One real child process: its death is seen, its end is decoded, a kill ends it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

from supervisor.children.process import ExitStatus, LocalProcess, decode_exit
from supervisor.parent.kernel import new_stops

DEADLINE_S = 60.0


async def spawn(*argv: str, given: bytes = b"", env: dict[str, str] | None = None) -> tuple[LocalProcess, asyncio.Future]:
    """A child and the future of its exit status."""
    ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    child = LocalProcess.spawn(argv, ended.set_result, env)
    child.send_spawn_spec(given)
    return child, ended


async def test_death_by_signal_is_seen_and_decoded() -> None:
    child, ended = await spawn("/bin/sleep", "600")
    os.kill(child.pid, signal.SIGKILL)
    assert str(await asyncio.wait_for(ended, DEADLINE_S)) == "killed by SIGKILL"
    assert child.exit == ExitStatus(-1, "SIGKILL")


async def test_exit_status_is_decoded() -> None:
    _, ended = await spawn("/bin/sh", "-c", "exit 3")
    assert str(await asyncio.wait_for(ended, DEADLINE_S)) == "exit status 3"


async def test_kill_ends_a_stopped_process_too() -> None:
    child, ended = await spawn("/bin/sleep", "600")
    os.kill(child.pid, signal.SIGSTOP)
    child.kill()
    assert (await asyncio.wait_for(ended, DEADLINE_S)).signal_name == "SIGKILL"


async def test_kill_of_the_dead_does_nothing() -> None:
    child, ended = await spawn("/bin/true")
    await asyncio.wait_for(ended, DEADLINE_S)
    child.kill()
    assert child.exit == ExitStatus(0, "")


async def test_memory_is_that_of_the_process_while_it_lives() -> None:
    child, ended = await spawn("/bin/sleep", "600")
    assert child.resident_bytes() > 0
    child.kill()
    await asyncio.wait_for(ended, DEADLINE_S)
    assert child.resident_bytes() == 0


async def test_it_reads_its_spawn_spec_from_standard_input() -> None:
    script = "import sys; sys.exit(len(sys.stdin.buffer.read()) // 1000)"
    _, ended = await spawn(sys.executable, "-c", script, given=b"x" * 42_000)
    assert (await asyncio.wait_for(ended, DEADLINE_S)).code == 42


async def test_environment_is_added() -> None:
    _, ended = await spawn("/bin/sh", "-c", 'test "$GIVEN" = yes && test -n "$PATH"', env={"GIVEN": "yes"})
    assert (await asyncio.wait_for(ended, DEADLINE_S)).code == 0


async def test_it_is_in_a_session_of_its_own() -> None:
    """So that Ctrl-C in a terminal reaches the supervisor alone."""
    child, ended = await spawn("/bin/sleep", "600")
    assert os.getsid(child.pid) == child.pid
    child.kill()
    await asyncio.wait_for(ended, DEADLINE_S)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EMFILE, errno.EPERM])
async def test_without_pidfds_a_thread_waits(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(number, "no pidfd now")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    child, ended = await spawn("/bin/sleep", "600")
    child.kill()
    assert (await asyncio.wait_for(ended, DEADLINE_S)).signal_name == "SIGKILL"
    child.kill()


async def test_a_child_that_nobody_can_watch_is_not_left_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[int] = []

    def refuse(pid: int) -> int:
        watched.append(pid)
        raise OSError(errno.EMFILE, "no descriptor left")

    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError, match="can't start new thread"):
        LocalProcess.spawn(["/bin/sleep", "600"], print)
    with pytest.raises(ProcessLookupError):
        os.kill(watched[0], 0)


async def test_no_descriptor_leaks() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        _, ended = await spawn("/bin/true")
        await asyncio.wait_for(ended, DEADLINE_S)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize(
    ("returncode", "text"),
    [(0, "exit status 0"), (1, "exit status 1"), (-15, "killed by SIGTERM"), (-250, "killed by signal 250")],
)
def test_decoding(returncode: int, text: str) -> None:
    assert str(decode_exit(returncode)) == text


async def test_a_closed_standard_input_is_noticed_before_the_death() -> None:
    """As of a process whose memory takes a while to be freed."""
    ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    child = LocalProcess.spawn(["/bin/sh", "-c", "printf w >&0; exec 0<&-; exec sleep 60"], ended.set_result)
    ending: asyncio.Future[ExitStatus | None] = asyncio.get_running_loop().create_future()
    child.on_ending = ending.set_result
    child.send_spawn_spec(b"x")
    assert await asyncio.wait_for(ending, DEADLINE_S) is None  # nobody knows how it will end
    assert child.exit is None
    child.kill()
    assert (await asyncio.wait_for(ended, DEADLINE_S)).signal_name == "SIGKILL"


def test_the_kernel_tells_once_who_was_stopped_and_who_goes_on() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child, subprocess.Popen(["true"]) as ending:
        for number, is_stopped in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            child.send_signal(number)
            told: dict[int, bool] = {}
            while child.pid not in told:
                told |= new_stops()
            assert told[child.pid] is is_stopped
            assert child.pid not in new_stops()
        child.kill()
        assert (child.wait(), ending.wait()) == (-signal.SIGKILL, 0), "how they end is not taken from who waits for them"


def test_who_has_no_children_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_children(*_: int) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", without_children)
    assert new_stops() == {}
