"""The fork server: what it makes is a child like any other, and it delays nobody when it is dead, stopped, busy or wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.children import fork_server
from supervisor.children.fork_link import ForkLink
from supervisor.children.fork_server import FORKED_ROLES, ForkRequest, find_fork_server, is_forked
from supervisor.children.process import ExitStatus, LocalProcess, Strays
from supervisor.children.spawner import LocalSpawner
from supervisor.directories.register import read_register
from supervisor.parent.kernel import new_stops, parent_of
from tests.support.supervisor.trees import group

DEADLINE_S = 60.0
_PR_SET_CHILD_SUBREAPER = 36
[SPEC] = group("custodian/0").children


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """This process is one for a while, as a supervisor is."""
    import ctypes

    libc = ctypes.CDLL(None)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


@pytest.fixture
def forks() -> Iterator[ForkLink]:
    fork_server.launch_early()
    found = ForkLink()
    yield found
    found.close()


def words_of(pid: int) -> list[str]:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


async def forked(forks: ForkLink, spec_name: str = "custodian/0", **descriptors: int) -> tuple[LocalProcess, asyncio.Future]:
    """A process that was forked, and the future of its exit status."""
    ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    process = forks.fork(ForkRequest(spec_name), descriptors, ended.set_result)
    assert process is not None
    return process, ended


async def test_what_it_makes_is_a_child_with_its_own_name_session_and_descriptors(forks: ForkLink) -> None:
    read_end, write_end = os.pipe()
    try:
        process, ended = await forked(forks, pipe=read_end)
        assert parent_of(process.pid) == os.getpid()
        async with asyncio.timeout(DEADLINE_S):
            while words_of(process.pid)[1:] != ["-m", "supervisor.children.entrypoint", "custodian/0"]:
                await asyncio.sleep(0.01)
        assert os.getsid(process.pid) == process.pid
        assert process.descriptors is not None
        numbers = {int(number) for number in os.listdir(f"/proc/{process.pid}/fd")}
        assert numbers >= {0, 1, 2, process.descriptors["pipe"]}
        inode = os.stat(f"/proc/{process.pid}/fd/{process.descriptors['pipe']}").st_ino
        assert inode == os.fstat(read_end).st_ino
    finally:
        os.close(read_end)
        os.close(write_end)
    process.kill()
    assert await asyncio.wait_for(ended, DEADLINE_S) == ExitStatus(-1, "SIGKILL")


async def test_two_of_them_have_no_descriptor_of_each_other(forks: ForkLink) -> None:
    first, first_ended = await forked(forks)
    second, second_ended = await forked(forks, "gateway/0")
    first.send_spawn_spec(b"")  # its standard input ends, so it does, although the second one was forked after it
    assert await asyncio.wait_for(first_ended, DEADLINE_S) == ExitStatus(1, "")
    assert second.exit is None
    second.send_spawn_spec(b"")
    assert await asyncio.wait_for(second_ended, DEADLINE_S) == ExitStatus(1, "")


async def test_the_kernel_tells_this_process_when_one_is_stopped(forks: ForkLink) -> None:
    process, ended = await forked(forks)
    os.kill(process.pid, signal.SIGSTOP)
    async with asyncio.timeout(DEADLINE_S):
        while new_stops().get(process.pid) is not True:
            await asyncio.sleep(0.01)
    assert process.is_suspended()
    process.kill()
    await asyncio.wait_for(ended, DEADLINE_S)


async def test_one_that_is_dead_is_replaced_and_forks_nothing_meanwhile(forks: ForkLink) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    pid = forks.pid
    assert find_fork_server(os.getpid()) == pid
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert forks.fork(ForkRequest("custodian/0"), {}, lambda status: None) is None
    assert forks.look(time.monotonic())
    assert forks.pid not in (0, pid)
    process, ended = await forked(forks)
    process.kill()
    await asyncio.wait_for(ended, DEADLINE_S)


async def test_one_that_is_stopped_is_not_asked_and_is_replaced_at_the_second_look(forks: ForkLink) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    pid = forks.pid
    os.kill(pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    began_s = time.monotonic()
    assert forks.fork(ForkRequest("custodian/0"), {}, lambda status: None) is None
    assert time.monotonic() - began_s < 0.5
    assert not forks.look(0.0)
    assert forks.look(0.5)
    assert forks.pid not in (0, pid)


async def test_one_that_loads_forks_nothing_and_what_it_has_loaded_is_there_in_all(forks: ForkLink, tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    forks.load((f"os:mkdir={tmp_path / 'loaded'}",))
    assert forks.fork(ForkRequest("custodian/0"), {}, lambda status: None) is None
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    assert (tmp_path / "loaded").is_dir()
    forks.look(time.monotonic())  # once is enough
    assert forks.is_warm


async def test_a_warm_up_that_fails_is_left_to_the_actor(forks: ForkLink) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
        pid = forks.pid
        forks.load(("supervisor.no_such_module",))
        await forks.wait_warm()
    assert forks.is_warm
    assert forks.pid == pid


async def test_one_that_never_becomes_warm_is_replaced_a_few_times_and_then_after_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "_PROGRAM", "supervisor.no_such_module")
    forks, found, now_s = ForkLink(), set[int](), time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        while forks.look(now_s):
            found.add(forks.pid)
            await forks.wait_warm()
    assert len(found) == 4
    assert forks.pid == 0
    assert not forks.look(now_s + 29.0)
    assert forks.look(now_s + 31.0)
    await forks.wait_warm()
    assert not forks.look(now_s + 60.0)
    assert forks.pid == 0


async def test_one_comes_although_several_were_killed_while_they_began(forks: ForkLink) -> None:
    now_s = time.monotonic()
    for _ in range(5):
        os.kill(forks.pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, forks.pid, os.WEXITED | os.WNOWAIT)
        now_s += 31.0
        assert forks.look(now_s)
    process, ended = await forked(forks)
    process.kill()
    await asyncio.wait_for(ended, DEADLINE_S)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_it_ends_with_the_supervisor(is_stopped: bool) -> None:
    program = """
import os, signal, sys
from supervisor.children.fork_link import ForkLink
from supervisor.children.fork_server import launch_early
launch_early()
forks = ForkLink()
while not forks.is_warm:
    pass
if sys.argv[1] == "True":
    os.kill(forks.pid, signal.SIGSTOP)
print(forks.pid)
"""
    argv = [sys.executable, "-c", program, str(is_stopped)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    pid, strays, end_s = int(done.stdout), Strays(), time.monotonic() + DEADLINE_S
    while parent_of(pid):  # this process is a subreaper
        assert time.monotonic() < end_s
        strays.reap(set())


async def test_strays_are_reaped_and_known_children_are_not() -> None:
    ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    known = LocalProcess.spawn(["/bin/sleep", "600"], ended.set_result)
    middle = await asyncio.create_subprocess_shell("/bin/sh -c 'exit 3' & echo $!; exec 1>&-; read x", stdin=-1, stdout=-1)
    assert middle.stdout is not None
    stray = int(await middle.stdout.read())
    middle.kill()
    await middle.wait()
    strays = Strays()
    async with asyncio.timeout(DEADLINE_S):
        while parent_of(stray):
            strays.reap({known.pid})
            await asyncio.sleep(0.01)
    known.kill()
    assert (await asyncio.wait_for(ended, DEADLINE_S)).signal_name == "SIGKILL"


async def test_ranks_new_programs_and_children_with_an_environment_get_new_interpreters(
    forks: ForkLink, tmp_path: Path
) -> None:
    spawner = LocalSpawner(tmp_path / "children.json", "tests.support.supervisor.stub_entrypoint", forks=forks)
    async with asyncio.timeout(DEADLINE_S):
        await spawner.wait_warm()
    assert spawner.forks(SPEC)
    assert not spawner.forks(replace(SPEC, env={"A": "1"}))
    assert not spawner.forks(replace(SPEC, name="worker/0.0"))
    assert [spawner.can_fork(spec) for spec in (SPEC, replace(SPEC, name="worker/0.0"))] == [True, False]
    made = [spawner.spawn(SPEC, lambda status: None), spawner.spawn(SPEC, lambda status: None, (), is_new=True)]
    assert ["stub_entrypoint" in word for process in made for word in words_of(process.pid)[2:3]] == [False, True]
    for process in made:
        process.kill()
        async with asyncio.timeout(DEADLINE_S):
            while process.exit is None:
                await asyncio.sleep(0.01)


async def test_the_fork_server_is_registered_at_the_first_look(forks: ForkLink, tmp_path: Path) -> None:
    spawner = LocalSpawner(tmp_path / "children.json", forks=forks)  # of a supervisor that follows another one: nothing waits
    spawner.retry_writes()
    assert [child.pid for child in read_register(tmp_path / "children.json")] == [forks.pid]


def test_no_actor_that_uses_a_device_is_forked() -> None:
    assert not is_forked("worker/0.0")
    assert not is_forked("embedder/0")
    assert {"gateway", "scheduler", "custodian", "vault"} <= FORKED_ROLES


async def test_the_next_supervisor_is_a_child_that_waits_and_ends_with_its_link(forks: ForkLink) -> None:
    """It has a fork server of its own, which ends with it."""
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    successor = forks.fork_supervisor()
    assert successor is not None
    assert parent_of(successor.pid) == os.getpid()
    async with asyncio.timeout(DEADLINE_S):
        while not (own := find_fork_server(successor.pid)):
            await asyncio.sleep(0.01)
    assert os.getsid(successor.pid) == successor.pid
    successor.end.close()
    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.to_thread(os.waitpid, successor.pid, 0) == (successor.pid, 0)
        while parent_of(own) not in (0, os.getpid()):
            await asyncio.sleep(0.01)


async def test_it_imports_the_program_of_a_supervisor_when_nothing_else_is_to_do(forks: ForkLink) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    now_s = time.monotonic()
    forks.look(now_s + 1.0)
    assert forks.is_warm
    forks.look(now_s + 60.0)
    assert not forks.is_warm
    async with asyncio.timeout(DEADLINE_S):
        await forks.wait_warm()
    forks.look(now_s + 120.0)
    assert forks.is_warm, "once"
    successor = forks.fork_supervisor()
    assert successor is not None
    successor.end.close()
    assert await asyncio.to_thread(os.waitpid, successor.pid, 0) == (successor.pid, 0)
