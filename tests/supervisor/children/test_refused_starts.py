"""A machine without room refuses to start processes: none is lost or left untracked. And a bug ends the server."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from supervisor.children import process, spares, starter
from supervisor.children.spares import Spares
from supervisor.directories import register
from supervisor.policy.child_spec import Strategy
from tests.support.supervisor.supervisor_rig import DEADLINE_S
from tests.support.supervisor.trees import group

GANG = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True)


class Refusing:
    """Stands before a function; refuses calls with an error number as long as `is_wanted` says so."""

    def __init__(self, real: Callable, number: int) -> None:
        self._real, self._number = real, number
        self.is_wanted: Callable[[int], bool] = lambda call: False
        self.calls = 0

    def __call__(self, *args: object, **more: object) -> object:
        self.calls += 1
        if self.is_wanted(self.calls):
            raise OSError(self._number, os.strerror(self._number))
        return self._real(*args, **more)


async def test_a_child_that_dies_while_no_process_can_be_made_comes_back(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = Refusing(subprocess.Popen, errno.EAGAIN)
    monkeypatch.setattr(process.subprocess, "Popen", popen)
    async with open_rig(group("cache_directory/0"), group("gateway/0")) as rig:
        await rig.until_serving()
        popen.calls, popen.is_wanted = 0, lambda call: True
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("gateway/0").phase.startswith("cannot start now"))
        (child,) = [child for child in rig.supervisor.report(False).children if child.name == "gateway/0"]
        assert (child.state, child.restarts_left) == ("dead", 2)
        assert "Resource temporarily unavailable" in child.phase
        assert rig.supervisor.state == "degraded"
        async with asyncio.timeout(DEADLINE_S):
            while popen.calls < 3:
                await asyncio.sleep(0.01)
        popen.is_wanted = lambda call: False
        await rig.until_serving()
        assert (rig.record("gateway/0").n_starts, rig.record("gateway/0").incarnation) == (2, 2)
        assert rig.record("cache_directory/0").incarnation == 1


async def test_a_gang_is_born_together_or_not_at_all(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = Refusing(subprocess.Popen, errno.EMFILE)
    monkeypatch.setattr(process.subprocess, "Popen", popen)
    async with open_rig(GANG, group("scheduler/0")) as rig:
        await rig.until_serving()
        popen.calls, popen.is_wanted = 0, lambda call: call >= 2
        os.kill(rig.record("worker/0.0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("worker/0.1").phase.startswith("cannot start now"))
        assert not rig.record("worker/0.0").is_alive
        (waits,) = rig.supervisor.children.spares._process_by_name.values()
        popen.is_wanted = lambda call: False
        await rig.until_serving()
        first, second = rig.record("worker/0.0"), rig.record("worker/0.1")
        assert first.process is waits
        assert (first.incarnation, first.gang_dir) == (second.incarnation, second.gang_dir)
        assert (first.n_starts, second.n_starts) == (2, 2)


async def test_a_gang_without_room_for_its_meeting_place_waits_for_it(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Refusing(starter.open_gang_dir, errno.ENOSPC)
    monkeypatch.setattr(starter, "open_gang_dir", mkdir)
    async with open_rig(GANG) as rig:
        await rig.until_serving()
        mkdir.calls, mkdir.is_wanted = 0, lambda call: call <= 2
        os.kill(rig.record("worker/0.1").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("worker/0.1").n_starts == 2)
        await rig.until_serving()
        assert mkdir.calls == 3


async def test_a_process_that_cannot_be_registered_is_ended(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Refusing(register.start_ticks_of, errno.EMFILE)
    monkeypatch.setattr(register, "start_ticks_of", ticks)
    made: list[subprocess.Popen] = []
    real_init = process.LocalProcess.__init__

    def remember(self: process.LocalProcess, popen: subprocess.Popen, *more: Any) -> None:
        made.append(popen)
        real_init(self, popen, *more)

    monkeypatch.setattr(process.LocalProcess, "__init__", remember)
    async with open_rig(group("gateway/0")) as rig:
        await rig.until_serving()
        made.clear()
        ticks.calls, ticks.is_wanted = 0, lambda call: call == 1
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("gateway/0").n_starts == 2)
        await rig.until_serving()
        refused, accepted = made
        assert refused.wait(DEADLINE_S) == -signal.SIGKILL
        assert accepted.pid == rig.record("gateway/0").process.pid


async def test_a_server_whose_children_cannot_be_started_stops_at_once(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = Refusing(subprocess.Popen, errno.EAGAIN)
    monkeypatch.setattr(process.subprocess, "Popen", popen)
    popen.is_wanted = lambda call: call > 1
    async with open_rig(group("cache_directory/0"), group("gateway/0")) as rig:
        await rig.until(lambda: rig.record("gateway/0").phase.startswith("cannot start now"))
        rig.supervisor.commands.stop()
        assert await rig.end() == 0


async def test_spares_that_are_refused_are_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_AFTER_S", "_NEXT_AFTER_S", "_REFUSED_S"):
        monkeypatch.setattr(spares, name, 0.001)

    def spawn(spec, on_exit, is_new) -> process.LocalProcess:
        says_that_it_is_warm = "echo >&0; exec sleep 600"
        return process.LocalProcess.spawn(["/bin/sh", "-c", says_that_it_is_warm], on_exit)

    refusing = Refusing(spawn, errno.EAGAIN)
    refusing.is_wanted = lambda call: call <= 2
    kept = Spares(refusing, is_wanted=True)  # type: ignore[arg-type]
    try:
        kept.fill([*group("gateway/0").children, *group("scheduler/0").children])
        async with asyncio.timeout(DEADLINE_S):
            while kept.names != {"gateway/0", "scheduler/0"}:
                await asyncio.sleep(0.01)
    finally:
        kept.close()
    assert await kept.wait_gone(DEADLINE_S)


async def test_a_bug_in_a_callback_ends_the_supervisor(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    async with open_rig(group("gateway/0"), group("scheduler/0")) as rig:
        await rig.until_serving()
        monkeypatch.setattr(rig.supervisor._policy, "died", fail)
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="a bug"):
            await rig.end()
        monkeypatch.undo()
        await rig.until(lambda: not rig.record("scheduler/0").is_alive)
