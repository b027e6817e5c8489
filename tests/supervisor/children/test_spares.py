"""A spare that was stopped from outside becomes nobody's next incarnation; one that is used while renewed comes again."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import cast

from supervisor.children.process import ChildProcess, ExitStatus, LocalProcess, OnExit
from supervisor.children.spares import Spares
from supervisor.policy.child_spec import ChildSpec
from tests.support.supervisor.supervisor_rig import DEADLINE_S, playing


def spawn(spec: ChildSpec, on_exit: OnExit) -> ChildProcess:
    return LocalProcess.spawn(["/bin/sleep", "600"], on_exit)


async def test_a_stopped_spare_is_killed_and_not_used() -> None:
    spares = Spares(spawn, is_wanted=True)
    process = LocalProcess.spawn(["/bin/sleep", "600"], lambda status: None)
    spares.keep("gateway/0", process)
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert spares.pop("gateway/0") is None
    assert spares.names == set()
    async with asyncio.timeout(DEADLINE_S):
        while process.exit is None:
            await asyncio.sleep(0.01)
    assert process.exit.signal_name == "SIGKILL"


async def test_a_spare_that_runs_is_used_once() -> None:
    spares = Spares(spawn, is_wanted=True)
    process = LocalProcess.spawn(["/bin/sleep", "600"], lambda status: None)
    spares.keep("gateway/0", process)
    assert spares.pop("gateway/0") is process
    assert spares.pop("gateway/0") is None
    process.kill()
    async with asyncio.timeout(DEADLINE_S):
        while process.exit is None:
            await asyncio.sleep(0.01)


SPEC = playing("good", "gateway/0").children[0]


class Warm:
    """A process that has loaded once it is told to."""

    def __init__(self) -> None:
        self.on_exit: OnExit = lambda status: None
        self.is_warm = False

    def is_suspended(self) -> bool:
        return False

    def kill(self) -> None:
        pass


async def renewing(made: list[Warm]) -> tuple[Spares, asyncio.Task[str]]:
    """Spares that are being renewed, with the first process."""

    def spawn_warm(spec: ChildSpec, on_exit: OnExit) -> ChildProcess:
        made.append(Warm())
        return cast(ChildProcess, made[-1])

    spares = Spares(spawn_warm, is_wanted=True)
    renewed = asyncio.create_task(spares.renew([SPEC], DEADLINE_S))
    async with asyncio.timeout(DEADLINE_S):
        while not made:
            await asyncio.sleep(0)
    return spares, renewed


async def test_a_process_that_takes_the_place_of_a_dead_child_is_made_again_for_a_rolling_restart() -> None:
    made = list[Warm]()
    spares, renewed = await renewing(made)
    assert spares.pop(SPEC.name) is cast(ChildProcess, made[0])
    async with asyncio.timeout(DEADLINE_S):
        while len(made) < 2:
            await asyncio.sleep(0.001)
        made[1].is_warm = True
        assert await renewed == ""
    assert spares.pop(SPEC.name) is cast(ChildProcess, made[1])


async def test_a_new_process_that_ends_before_it_is_used_is_named() -> None:
    made = list[Warm]()
    _, renewed = await renewing(made)
    made[0].on_exit(ExitStatus(1, ""))
    async with asyncio.timeout(DEADLINE_S):
        assert await renewed == "gateway/0: its new process ended before it was used; the log has the reason"
