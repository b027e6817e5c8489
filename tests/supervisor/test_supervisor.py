"""The supervisor over real processes of a stub actor: starts, deaths, restarts, commands. Every wait has a deadline."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from messages.outcomes import ExitCode
from supervisor.directories.run_dir_files import read_end
from supervisor.policy.child_spec import Budget, Strategy
from tests.support.supervisor.supervisor_rig import DEADLINE_S, playing
from tests.support.supervisor.trees import DEADLINES, group

GANG = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True)


def environment_of(pid: int) -> list[bytes]:
    """NAME=value of a process."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


async def test_everybody_starts_and_hears_of_everybody(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), GANG, group("gateway/0")) as rig:
        await rig.until_serving()
        for peer in ("cache_directory/0", "worker/0.0", "worker/0.1"):
            await rig.until_written("gateway/0", f"up {peer} 1")
            await rig.until_written(peer, "up gateway/0 1")
        assert rig.record("worker/0.0").gang_dir == rig.record("worker/0.1").gang_dir != ""


async def test_a_killed_child_comes_back_as_a_new_incarnation_and_peers_are_told(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), group("gateway/0")) as rig:
        await rig.until_serving()
        os.kill(rig.record("cache_directory/0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("cache_directory/0").incarnation == 2)
        await rig.until_serving()
        await rig.until_written("gateway/0", "up cache_directory/0 2")
        lines = rig.diary("gateway/0")
        assert lines.index("down cache_directory/0 1") < lines.index("up cache_directory/0 2")
        assert rig.record("gateway/0").incarnation == 1
        assert not (rig.run_dir / "cache_directory-0.1").exists()


async def test_a_gang_dies_and_comes_back_as_one(open_rig) -> None:
    async with open_rig(GANG, group("scheduler/0")) as rig:
        await rig.until_serving()
        before = rig.record("worker/0.0").gang_dir
        os.kill(rig.record("worker/0.1").process.pid, signal.SIGKILL)
        await rig.until(lambda: all(rig.record(n).incarnation == 2 for n in ("worker/0.0", "worker/0.1")))
        await rig.until_serving()
        assert rig.record("worker/0.0").gang_dir == rig.record("worker/0.1").gang_dir != before
        assert not os.access(before, os.F_OK)
        await rig.until_written("scheduler/0", "up worker/0.0 2")
        await rig.until_written("scheduler/0", "up worker/0.1 2")
        lines = rig.diary("scheduler/0")
        assert lines.index("down worker/0.0 1") < lines.index("up worker/0.1 2")


async def test_a_frozen_child_is_killed_and_replaced(open_rig) -> None:
    quick = replace(DEADLINES, frozen_s=1.0)
    async with open_rig(group("speculation/0", deadlines=quick)) as rig:
        await rig.until_serving()
        os.kill(rig.record("speculation/0").process.pid, signal.SIGSTOP)
        await rig.until(lambda: rig.record("speculation/0").incarnation == 2)
        await rig.until_serving()


async def test_a_stuck_child_is_killed_and_replaced(open_rig) -> None:
    async with open_rig(playing("stuck", "worker/0.0", budget=Budget(1, 60.0, 3, 9))) as rig:
        await rig.until(lambda: rig.record("worker/0.0").incarnation == 2)
        assert await rig.end() == ExitCode.BUDGET_SPENT


async def test_a_child_that_never_speaks_is_killed(open_rig) -> None:
    quick = replace(DEADLINES, hello_s=1.0)
    async with open_rig(playing("silent", "worker/0.0", deadlines=quick, budget=Budget(9, 60.0, 1, 9))) as rig:
        assert await rig.end() == ExitCode.NOT_STARTED


async def test_a_start_that_fails_ends_with_its_reason(open_rig, capfd: pytest.CaptureFixture[str]) -> None:
    async with open_rig(group("cache_directory/0"), playing("fails", "worker/0.0")) as rig:
        assert await rig.end() == ExitCode.NOT_STARTED
        assert rig.record("worker/0.0").n_starts == 3
    shown = capfd.readouterr().err
    assert (
        "supervisor: worker/0.0: died 3 times in a row before it was ready; worker/0.0 failed in start: RuntimeError:"
        " no weights here (--log-level debug shows the traceback)\n"
    ) in shown
    assert "Traceback" not in shown


async def test_a_start_that_cannot_succeed_is_not_repeated(open_rig) -> None:
    async with open_rig(playing("unusable", "worker/0.0")) as rig:
        assert await rig.end() == ExitCode.NOT_STARTED
        assert rig.record("worker/0.0").n_starts == 1


async def test_a_start_that_cannot_succeed_shows_one_line(open_rig, capfd: pytest.CaptureFixture[str]) -> None:
    async with open_rig(playing("hopeless", "worker/0.0")) as rig:
        assert await rig.end() == ExitCode.NOT_STARTED
        assert rig.record("worker/0.0").n_starts == 1
    assert capfd.readouterr().err == "supervisor: worker/0.0 failed in start: model: expected a better one\n"


async def test_a_spent_budget_stops_everybody(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), group("gateway/0", budget=Budget(1, 60.0, 9, 9))) as rig:
        for incarnation in (1, 2):
            await rig.until(lambda incarnation=incarnation: rig.record("gateway/0").incarnation == incarnation)
            await rig.until_serving()
            os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        assert await rig.end() == ExitCode.BUDGET_SPENT


async def test_stop_is_in_reverse_start_order(open_rig) -> None:
    """What does the same work is stopped together."""
    async with open_rig(group("cache_directory/0"), GANG, group("gateway/0"), group("gateway/1")) as rig:
        await rig.until_serving()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await rig.end() == 0
        assert "down gateway/1 1" not in rig.diary("gateway/0")
        assert rig.diary("gateway/0")[-2:] == ["drain", "stop"]
        assert "down gateway/0 1" in rig.diary("worker/0.0")
        assert "down gateway/0 1" in rig.diary("cache_directory/0")
        assert "down cache_directory/0 1" not in rig.diary("gateway/0")


async def test_a_deaf_child_is_killed_at_its_deadline(open_rig) -> None:
    quick = replace(DEADLINES, stop_s=0.5)
    async with open_rig(playing("deaf", "gateway/0", deadlines=quick)) as rig:
        await rig.until_serving()
        rig.supervisor.commands.stop()
        assert await rig.end() == 0
        assert rig.record("gateway/0").process.exit.signal_name == "SIGKILL"


async def test_a_child_that_is_suspended_ends_in_order_at_a_stop(open_rig) -> None:
    """Nobody replaces it any more, so each one would take all of its time to end."""
    patient = replace(DEADLINES, frozen_s=DEADLINE_S, suspended_s=DEADLINE_S, stop_s=DEADLINE_S)
    async with open_rig(group("cache_directory/0", deadlines=patient), group("gateway/0")) as rig:
        await rig.until_serving()
        os.kill(rig.record("cache_directory/0").process.pid, signal.SIGSTOP)
        rig.supervisor.commands.stop()
        assert await rig.end() == 0
        assert rig.record("cache_directory/0").process.exit.code == 0


async def test_stop_waits_for_requests_in_progress(open_rig) -> None:
    async with open_rig(playing("busy", "gateway/0"), drain_s=DEADLINE_S) as rig:
        await rig.until_serving()
        rig.supervisor.commands.stop()
        await rig.until_written("gateway/0", "drain")
        assert rig.supervisor.state == "draining"
        os.kill(rig.record("gateway/0").process.pid, signal.SIGUSR1)
        assert await rig.end() == 0


async def test_drain_has_a_deadline(open_rig) -> None:
    async with open_rig(playing("busy", "gateway/0"), drain_s=0.3) as rig:
        await rig.until_serving()
        rig.supervisor.commands.stop()
        assert await rig.end() == ExitCode.DEADLINE
        status, words = read_end(rig.run_dir)
        assert (status, "after 0.3 s of draining" in words) == (ExitCode.DEADLINE, True)


async def test_a_drain_waits_for_the_next_incarnation_of_a_dead_gateway(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), playing("busy", "gateway/0"), drain_s=DEADLINE_S) as rig:
        await rig.until_serving()
        rig.supervisor.commands.stop()
        await rig.until_written("gateway/0", "drain")
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("gateway/0").incarnation == 2 and rig.record("gateway/0").state == "draining")
        assert rig.supervisor.state == "draining"
        async with asyncio.timeout(DEADLINE_S):
            while rig.diary("gateway/0").count("drain") < 2:
                await asyncio.sleep(0.01)
        os.kill(rig.record("gateway/0").process.pid, signal.SIGUSR1)
        assert await rig.end() == 0
        assert read_end(rig.run_dir) == (0, "")


async def test_a_budget_that_is_spent_during_a_drain_cuts_it_and_is_told(open_rig) -> None:
    lean = playing("busy", "gateway/0", budget=Budget(0, 60.0, 9, 9))
    async with open_rig(group("cache_directory/0"), lean, drain_s=DEADLINE_S) as rig:
        await rig.until_serving()
        rig.supervisor.commands.stop()
        await rig.until_written("gateway/0", "drain")
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        assert await rig.end() == ExitCode.BUDGET_SPENT
        assert read_end(rig.run_dir)[1].startswith("the server gave up: gateway/0: expected at most 0 restarts")


async def test_drain_keeps_everybody_and_a_gateway_that_comes_back_drains_too(open_rig) -> None:
    async with open_rig(playing("good", "gateway/0")) as rig:
        await rig.until_serving()
        rig.supervisor.commands.drain(DEADLINE_S, then_stop=False)
        await rig.until(lambda: rig.record("gateway/0").state == "drained")
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("gateway/0").incarnation == 2 and rig.record("gateway/0").state == "drained")
        assert rig.supervisor.state == "drained"
        rig.supervisor.commands.stop()
        assert await rig.end() == 0


async def test_a_bug_of_the_supervisor_ends_everybody(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    async with open_rig(group("gateway/0")) as rig:
        monkeypatch.setattr(rig.supervisor.commands._display, "serving", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            await rig.end()
        await rig.until(lambda: not rig.record("gateway/0").is_alive)
        assert rig.record("gateway/0").n_starts == 1


async def test_ctrl_c_twice_kills(open_rig) -> None:
    async with open_rig(playing("busy", "gateway/0"), drain_s=DEADLINE_S) as rig:
        await rig.until_serving()
        os.kill(os.getpid(), signal.SIGINT)
        await rig.until_written("gateway/0", "drain")
        os.kill(os.getpid(), signal.SIGINT)
        assert await rig.end() == ExitCode.FORCED


async def test_a_force_while_the_children_are_being_stopped_is_a_forced_end(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), playing("deaf", "gateway/0")) as rig:
        await rig.until_serving()
        os.kill(os.getpid(), signal.SIGINT)
        await rig.until_written("gateway/0", "stop")
        os.kill(os.getpid(), signal.SIGINT)
        assert await rig.end() == ExitCode.FORCED
        assert read_end(rig.run_dir) == (ExitCode.FORCED, "the server was forced to end: all its processes were killed")


async def test_stop_during_the_start_does_not_wait_for_it(open_rig) -> None:
    async with open_rig(playing("silent", "worker/0.0"), group("gateway/0")) as rig:
        await rig.until(lambda: rig.record("gateway/0").state == "ready")
        rig.supervisor.commands.stop()
        assert await rig.end() == 0


async def test_a_warm_spare_becomes_the_next_incarnation(open_rig) -> None:
    (gateway,) = group("gateway/0").children
    special = replace(group("gateway/0"), children=(replace(gateway, env={"OMP_NUM_THREADS": "3"}),))
    async with open_rig(group("cache_directory/0"), special, spares=True) as rig:
        await rig.until_serving()
        spares = rig.supervisor.children.spares
        async with asyncio.timeout(DEADLINE_S):
            while spares.names != {"cache_directory/0", "gateway/0"}:
                await asyncio.sleep(0.01)
        assert list(spares._process_by_name) == ["gateway/0", "cache_directory/0"]  # in the order in which they were made
        spare_pid = spares._process_by_name["gateway/0"].pid
        assert b"OMP_NUM_THREADS=3" in environment_of(spare_pid)
        os.kill(rig.record("gateway/0").process.pid, signal.SIGKILL)
        await rig.until(lambda: rig.record("gateway/0").incarnation == 2)
        assert rig.record("gateway/0").process.pid == spare_pid
        await rig.until_serving()


async def test_spares_that_die_are_replaced_up_to_a_bound(open_rig) -> None:
    async with open_rig(group("gateway/0"), spares=True) as rig:
        await rig.until_serving()
        spares = rig.supervisor.children.spares
        for _ in range(3):
            async with asyncio.timeout(DEADLINE_S):
                while not spares.names:
                    await asyncio.sleep(0.01)
            spares._process_by_name["gateway/0"].kill()
            async with asyncio.timeout(DEADLINE_S):
                while spares.names:
                    await asyncio.sleep(0.01)
            spares.fill([rig.record("gateway/0").spec])
        assert spares._timer is None


async def test_a_group_is_restarted_with_the_group_that_it_needs(open_rig) -> None:
    memory = group("cache_directory/0")
    gang = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True, needs=(memory.title,))
    async with open_rig(memory, gang, group("gateway/0")) as rig:
        await rig.until_serving()
        os.kill(rig.record("cache_directory/0").process.pid, signal.SIGKILL)
        restarted = ("cache_directory/0", "worker/0.0", "worker/0.1")
        await rig.until(lambda: all(rig.record(name).incarnation == 2 for name in restarted))
        await rig.until_serving()
        assert rig.record("gateway/0").incarnation == 1
        await rig.until_written("gateway/0", "cause worker/0.1 1 gang")
