"""A spare that was stopped from outside becomes nobody's next incarnation."""

from __future__ import annotations

import asyncio
import os
import signal

from supervisor.children.process import ChildProcess, LocalProcess, OnExit
from supervisor.children.spares import Spares
from supervisor.policy.child_spec import ChildSpec
from tests.support.supervisor.supervisor_rig import DEADLINE_S


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
