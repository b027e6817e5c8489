"""How the process of an earlier supervisor has ended: told by the parent, or asked of the kernel where no parent tells it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess

import pytest

from supervisor.children import adopted_process
from supervisor.children.adopted_process import AdoptedProcess
from supervisor.children.process import UNKNOWN_EXIT, ExitStatus
from supervisor.directories.register import ChildFacts, Registered, start_ticks_of
from supervisor.parent.kernel import exit_code_of
from supervisor.parent.link import Exits

DEADLINE_S = 60.0


def test_the_kernel_tells_how_a_process_has_ended(sleeper: subprocess.Popen[bytes]) -> None:
    pidfd = os.pidfd_open(sleeper.pid)
    assert exit_code_of(sleeper.pid, pidfd) is None
    sleeper.send_signal(signal.SIGSEGV)
    assert select.select([pidfd], [], [], DEADLINE_S)[0]
    assert exit_code_of(sleeper.pid, -1) == -signal.SIGSEGV
    sleeper.wait(DEADLINE_S)
    assert exit_code_of(sleeper.pid, -1) is None
    assert exit_code_of(sleeper.pid, pidfd) in (-signal.SIGSEGV, None), "kernels before 6.15 do not tell"
    os.close(pidfd)


@pytest.mark.parametrize("code", [-signal.SIGSEGV, None])
async def test_a_death_that_no_parent_can_tell_is_not_waited_for(
    code: int | None, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of this process, not of its parent: as one whose own parent was killed."""
    monkeypatch.setattr(adopted_process, "_STATUS_S", 2 * DEADLINE_S)
    monkeypatch.setattr(adopted_process, "exit_code_of", lambda pid, pidfd: code)
    ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    ticks = start_ticks_of(sleeper.pid)
    assert ticks is not None
    process = AdoptedProcess(Registered(ChildFacts("worker/0.0", 1), sleeper.pid, ticks), Exits(), ended.set_result)
    process.kill()
    expected = UNKNOWN_EXIT if code is None else ExitStatus(-1, "SIGSEGV")
    assert await asyncio.wait_for(ended, DEADLINE_S) == expected
