"""kill -9 of the supervisor or its parent while streams run: the children go on serving, and the next supervisor adopts them.

No incarnation changes, so no stream waits for anything; exit causes of children that die meanwhile are kept.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator

import pytest

from messages.client import AsyncClient
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S, N_STREAMS, Streams
from tests.support.waiting import next_turn
from tests.support.workers.pulse import PULSE

pytestmark = pytest.mark.timeout(600)
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with real_server(*WITH_SPARES, *FLAGS) as server:
        yield server


def incarnations(server: RealServer) -> dict[str, int]:
    """The present incarnation of every child."""
    return {child.name: child.incarnation for child in server.wait_serving().children}


def processes_of(server: RealServer) -> set[int]:
    """Every process whose session was started by this server, found by its inherited log file."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.readlink(f"/proc/{entry}/fd/2") == str(server.log_path):
                    found.add(int(entry))
            except OSError:
                continue
    return found


async def test_streams_do_not_notice_the_death_of_the_supervisor(server: RealServer) -> None:
    before = await asyncio.to_thread(incarnations, server)
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client, salt=1)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        for n_tokens in (20, 80):
            await streams.wait_running(n_tokens)
            with PULSE.held():  # however long the next supervisor takes, streams are not over before it is killed too
                killed = await asyncio.to_thread(server.kill_supervisor)
                streams.assert_cut()
                await asyncio.to_thread(server.wait_supervisor, killed)
        await work
        streams.check()
    assert await asyncio.to_thread(incarnations, server) == before


async def test_a_supervisor_is_killed_while_it_adopts(server: RealServer) -> None:
    before = await asyncio.to_thread(incarnations, server)
    first = await asyncio.to_thread(server.kill_supervisor)
    while (second := server.supervisor_pid) == first:  # it has just begun
        await next_turn()
    os.kill(second, signal.SIGKILL)
    await asyncio.to_thread(server.wait_supervisor, second)
    assert await asyncio.to_thread(incarnations, server) == before


@pytest.mark.parametrize(
    ("name", "how", "last_exit"),
    [
        ("worker/0.0", signal.SIGSEGV, "killed by SIGSEGV"),
        ("gateway/0", signal.SIGKILL, "killed by SIGKILL"),
        ("scheduler/0", signal.SIGABRT, "killed by SIGABRT"),
    ],
)
async def test_a_child_that_dies_without_a_supervisor_is_replaced_and_its_exit_is_known(
    server: RealServer, name: str, how: signal.Signals, last_exit: str
) -> None:
    before = await asyncio.to_thread(incarnations, server)
    victim = await asyncio.to_thread(server.child, name)
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client, salt=2)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        killed = await asyncio.to_thread(server.kill_supervisor)
        os.kill(int(victim.pid), how)
        streams.assert_cut()
        await asyncio.to_thread(server.wait_supervisor, killed)
        await work
        streams.check()
    assert await asyncio.to_thread(incarnations, server) == {**before, name: before[name] + 1}
    assert (await asyncio.to_thread(server.child, name)).last_exit == last_exit


async def test_a_supervisor_is_killed_while_a_child_restarts(server: RealServer) -> None:
    before = await asyncio.to_thread(incarnations, server)
    incarnation = await asyncio.to_thread(server.kill, "worker/0.0")
    killed = await asyncio.to_thread(server.kill_supervisor)
    await asyncio.to_thread(server.wait_supervisor, killed)
    after = await asyncio.to_thread(incarnations, server)
    assert after.pop("worker/0.0") > incarnation
    del before["worker/0.0"]
    assert after == before


async def test_streams_do_not_notice_the_death_of_the_parent(server: RealServer) -> None:
    before = await asyncio.to_thread(incarnations, server)
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client, salt=3)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        await streams.wait_running(20)
        supervisor, parent = server.supervisor_pid, await asyncio.to_thread(server.kill_parent)
        streams.assert_cut()
        report = await asyncio.to_thread(server.wait_parent, parent)
        assert (report.parent_pid, report.parent_deaths) == (supervisor, 1), "the supervisor has taken its place"
        killed = await asyncio.to_thread(server.kill_supervisor)
        await asyncio.to_thread(server.wait_supervisor, killed)
        await work
        streams.check()
    assert await asyncio.to_thread(incarnations, server) == before
    assert server.log().count("the parent was killed: this process becomes the parent") == 1


def test_a_stop_after_that_leaves_nobody() -> None:
    server = RealServer(*WITH_SPARES, *FLAGS)
    try:
        server.wait_supervisor(server.kill_supervisor())
        assert len(processes_of(server)) >= 7
        server.kill_supervisor()
        assert server.stop() == 0, "the next supervisor gets the order to stop"
        assert processes_of(server) == set()
    finally:
        server.clean()


def test_children_without_a_supervisor_end_by_themselves() -> None:
    server = RealServer(*WITH_SPARES, *FLAGS, "--set", "supervisor.orphan_s=0.5")
    try:
        pidfds = [os.pidfd_open(int(child.pid)) for child in server.status().children]
        server.kill_both()
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], DEADLINE_S)[0], server.log()
            os.close(pidfd)
        assert "no supervisor came back in time" in server.log()
    finally:
        server.clean()


async def test_streams_go_on_after_everything_was_killed_and_started_again() -> None:
    server = await asyncio.to_thread(RealServer, *FLAGS)
    try:
        async with AsyncClient(server.zeromq) as client:
            streams = Streams(client)
            work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
            await streams.wait_running(20)
            pidfds = [os.pidfd_open(int(child.pid)) for child in (await asyncio.to_thread(server.status)).children]
            frozen = await asyncio.to_thread(server.child, "worker/0.0")
            os.kill(int(frozen.pid), signal.SIGSTOP)  # one that could not end itself
            old_pid = server.supervisor_pid
            await asyncio.to_thread(server.kill_both)
            await asyncio.to_thread(server.start_again)
            for pidfd in pidfds:
                assert select.select([pidfd], [], [], 0.0)[0], "a child of the killed supervisor still lives"
                os.close(pidfd)
            await work
            streams.check()
        assert "the last server here was killed" in server.log()
        assert f"pid={old_pid}" in server.log()
        assert await asyncio.to_thread(server.stop) == 0
    finally:
        server.clean()
