"""A spare that was stopped from outside becomes nobody's next incarnation; one that is used while renewed comes again."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import cast

import pytest

from supervisor.children.process import ChildProcess, ExitStatus, LocalProcess, OnExit
from supervisor.children.spares import Spares
from supervisor.policy.child_spec import ChildSpec
from tests.support.supervisor.supervisor_rig import DEADLINE_S, playing
from tests.support.waiting import next_turn


def spawn(spec: ChildSpec, on_exit: OnExit, is_new: bool) -> ChildProcess:
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


async def spare_beside(spares: Spares, made: list[LocalProcess], n: int) -> LocalProcess:
    """The newest spare, once `n` have been made."""
    async with asyncio.timeout(DEADLINE_S):
        while len(made) < n:
            await asyncio.sleep(0.01)
    return made[-1]


def making(made: list[LocalProcess], monkeypatch: pytest.MonkeyPatch) -> Spares:
    """Spares of one child that are made at once, and noted in `made`."""
    monkeypatch.setattr("supervisor.children.spares._FIRST_AFTER_S", 0.0)

    def spawn_noted(spec: ChildSpec, on_exit: OnExit, is_new: bool) -> ChildProcess:
        made.append(LocalProcess.spawn(["/bin/sleep", "600"], on_exit))
        return made[-1]

    spares = Spares(spawn_noted, is_wanted=True)
    spares.fill([SPEC])
    return spares


async def test_a_stopped_spare_is_replaced_before_anybody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[LocalProcess]()
    spares = making(made, monkeypatch)
    for n in range(1, 6):  # more often than spares may die by themselves
        process = await spare_beside(spares, made, n)
        os.kill(process.pid, signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        for now_s in (0.0, 0.5):
            spares.look(now_s)
        async with asyncio.timeout(DEADLINE_S):
            while process.exit is None:
                await asyncio.sleep(0.01)
    assert spares.pop(SPEC.name) is await spare_beside(spares, made, 6)
    made[-1].kill()


async def test_a_spare_that_does_not_load_in_time_is_replaced_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[LocalProcess]()
    spares = making(made, monkeypatch)
    for n in range(1, 4):
        process = await spare_beside(spares, made, n)
        spares.look(0.0)
        spares.look(120.0)
        assert process in spares._process_by_name.values()
        spares.look(120.1)
        assert process not in spares._process_by_name.values()
    spares.look(121.0)
    assert spares._timer is None
    assert spares.names == set()


async def test_a_spare_that_died_is_made_again_while_the_tree_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[LocalProcess]()
    spares = making(made, monkeypatch)
    process = await spare_beside(spares, made, 1)
    process.kill()
    async with asyncio.timeout(DEADLINE_S):
        while process.exit is None:
            await asyncio.sleep(0.01)
    spares.look(0.0)
    await spare_beside(spares, made, 2)
    spares.cancel()
    made[-1].kill()
    async with asyncio.timeout(DEADLINE_S):
        while made[-1].exit is None:
            await asyncio.sleep(0.01)
    spares.look(1.0)
    assert spares._timer is None, "none are made while a child restarts"


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

    def spawn_warm(spec: ChildSpec, on_exit: OnExit, is_new: bool) -> ChildProcess:
        made.append(Warm())
        return cast(ChildProcess, made[-1])

    spares = Spares(spawn_warm, is_wanted=True)
    renewed = asyncio.create_task(spares.renew([SPEC], DEADLINE_S))
    async with asyncio.timeout(DEADLINE_S):
        while not made:
            await next_turn()
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


async def test_one_that_still_imports_stays_a_spare_where_the_child_can_be_forked() -> None:
    """Else a child that dies while it is renewed would wait for the imports of a new interpreter."""
    made = list[Warm]()
    spares, renewed = await renewing(made)
    assert spares.pop(SPEC.name, only_warm=True) is None
    made[0].is_warm = True
    assert await renewed == ""
    assert len(made) == 1, "it was not used, so no other one was made"
    assert spares.pop(SPEC.name, only_warm=True) is cast(ChildProcess, made[0])


async def test_no_spare_is_made_beside_one_that_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hide a new process that cannot load."""
    made = list[Warm]()
    spares, renewed = await renewing(made)
    spares._process_by_name.clear()
    spares._make([SPEC])
    assert len(made) == 1
    assert await renewed == "gateway/0: its new process ended before it was used; the log has the reason"
    spares._make([SPEC])
    assert len(made) == 2


async def test_a_new_process_that_ends_before_it_is_used_is_named() -> None:
    made = list[Warm]()
    _, renewed = await renewing(made)
    made[0].on_exit(ExitStatus(1, ""))
    async with asyncio.timeout(DEADLINE_S):
        assert await renewed == "gateway/0: its new process ended before it was used; the log has the reason"
