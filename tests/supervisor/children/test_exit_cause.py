"""Peers are told how an incarnation ended: real processes for each cause, and the kernel's count of out-of-memory kills."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from messages.lifecycle.lifecycle import Cause, Progress
from supervisor.children.child_record import ChildRecord
from supervisor.children.exit_cause import Awaited, OutOfMemoryKills, awaited_by, cause_of, own_counters
from supervisor.children.process import LocalProcess, decode_exit
from supervisor.policy.child_spec import Strategy
from tests.support.supervisor.supervisor_rig import DEADLINE_S, SupervisorRig, playing
from tests.support.supervisor.trees import DEADLINES, group

GANG = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True)


@pytest.fixture
async def running_sleep() -> AsyncIterator[LocalProcess]:
    """A real process that does nothing."""
    ended = asyncio.Event()
    process = LocalProcess.spawn(["/bin/sleep", "600"], lambda status: ended.set())
    yield process
    process.kill()
    await asyncio.wait_for(ended.wait(), DEADLINE_S)


def hit(rig: SupervisorRig, name: str, how: int) -> None:
    """A signal to the present incarnation."""
    process = rig.record(name).process
    assert process is not None
    os.kill(process.pid, how)


@pytest.mark.parametrize(
    ("behaviour", "how", "cause"),
    [
        ("good", signal.SIGKILL, "killed"),
        ("good", signal.SIGSEGV, "crashed"),
        ("good", signal.SIGABRT, "crashed"),
        ("good", signal.SIGXCPU, "crashed"),
        ("good", signal.SIGUSR2, "killed"),
        ("good", signal.SIGSTOP, "killed"),
        ("freezes", signal.SIGUSR1, "hung"),
        ("faulty", signal.SIGUSR1, "faulted"),
        ("leaves", signal.SIGUSR1, "faulted"),
    ],
)
async def test_a_peer_hears_how_it_ended(open_rig, behaviour: str, how: int, cause: Cause) -> None:
    dying = playing(behaviour, "speculation/0", deadlines=replace(DEADLINES, frozen_s=1.0))
    async with open_rig(dying, group("gateway/0")) as rig:
        await rig.until_serving()
        await rig.until_written("gateway/0", "up speculation/0 1")
        hit(rig, "speculation/0", how)
        await rig.until_written("gateway/0", f"cause speculation/0 1 {cause}")
        await rig.until(lambda: rig.record("speculation/0").incarnation == 2)


async def test_an_operator_reads_that_a_child_was_stopped(open_rig) -> None:
    async with open_rig(group("speculation/0", deadlines=replace(DEADLINES, frozen_s=1.0))) as rig:
        await rig.until_serving()
        hit(rig, "speculation/0", signal.SIGSTOP)
        await rig.until(lambda: rig.record("speculation/0").incarnation == 2)
        assert rig.record("speculation/0").last_exit == "killed by SIGKILL (frozen: no Progress for 1 s, stopped from outside)"


def rank(number: int, process: LocalProcess | None = None) -> ChildRecord:
    """A rank of a gang, as its supervisor knows it."""
    record = ChildRecord(GANG.children[number])
    record.process = process
    return record


def heard(record: ChildRecord, steps: int, busy_s: float, heard_s: float) -> None:
    """Its last Progress."""
    record.last, record.heard_s = Progress(steps=steps, busy_s=busy_s, statistics={}, metrics=[]), heard_s


async def test_only_a_living_process_that_was_stopped_is_taken_for_one(running_sleep: LocalProcess) -> None:
    late, other = rank(0), rank(1, running_sleep)
    assert awaited_by(late, [late, other]) == Awaited(late, "hung")
    os.kill(running_sleep.pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, running_sleep.pid, os.WSTOPPED | os.WNOWAIT)
    assert awaited_by(late, [late, other]) == Awaited(other, "killed", ", stopped from outside")
    running_sleep.pid = 2**22 + 1  # a process that does not exist
    assert awaited_by(late, [late, other]) == Awaited(late, "hung")


@pytest.mark.parametrize(
    ("steps", "busy_s", "heard_s", "is_awaited"),
    [
        (7, 0.0, 100.9, True),  # it is well, and its plan has not come
        (7, 0.9, 100.9, False),  # it computes as well
        (8, 0.0, 100.9, False),  # it has done that step
        (7, 0.0, 100.1, False),  # it has sent nothing since it should have begun: it may have frozen in it
    ],
)
def test_no_computation_is_blamed_while_a_rank_has_not_begun_the_step(
    steps: int, busy_s: float, heard_s: float, is_awaited: bool
) -> None:
    late, other = rank(0), rank(1)
    assert awaited_by(late, [late, other]) == Awaited(late, "hung"), "nothing has been heard of them"
    heard(late, 7, 1.0, 101.0)
    heard(other, steps, busy_s, heard_s)
    expected = Awaited(other, "killed", "; worker/0.1 has not begun it") if is_awaited else Awaited(late, "hung")
    assert awaited_by(late, [late, other]) == expected


async def test_ranks_that_must_go_with_a_killed_one_die_of_their_gang(open_rig) -> None:
    async with open_rig(GANG, group("scheduler/0")) as rig:
        await rig.until_serving()
        await rig.until_written("scheduler/0", "up worker/0.0 1")
        await rig.until_written("scheduler/0", "up worker/0.1 1")
        hit(rig, "worker/0.1", signal.SIGKILL)
        expected = {"cause worker/0.1 1 killed", "cause worker/0.0 1 gang"}  # in the order in which the kernel ends them
        for line in expected:
            await rig.until_written("scheduler/0", line)
        assert {line for line in rig.diary("scheduler/0") if line.startswith("cause")} == expected


async def test_who_is_stopped_has_ended(open_rig) -> None:
    async with open_rig(group("cache_directory/0"), group("gateway/0")) as rig:
        await rig.until_serving()
        rig.supervisor.commands.stop()
        assert await rig.end() == 0
        assert "cause gateway/0 1 ended" in rig.diary("cache_directory/0")


async def test_a_kill_by_the_kernel_is_told_apart(open_rig, tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("oom_kill 3\n")
    async with open_rig(group("speculation/0"), group("gateway/0")) as rig:
        rig.supervisor.children._spawner._memory_kills = OutOfMemoryKills(counters, window_s=DEADLINE_S)
        for incarnation, count, cause in [(1, 4, "out_of_memory"), (2, 4, "killed")]:
            await rig.until(lambda incarnation=incarnation: rig.record("speculation/0").incarnation == incarnation)
            await rig.until_serving()
            await rig.until_written("gateway/0", f"up speculation/0 {incarnation}")
            counters.write_text(f"oom_kill {count}\n")
            hit(rig, "speculation/0", signal.SIGKILL)
            await rig.until_written("gateway/0", f"cause speculation/0 {incarnation} {cause}")
            if incarnation == 1:
                assert rig.record("speculation/0").last_exit == "killed by SIGKILL, out of memory"


def test_each_rise_of_the_count_explains_one_death(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("nr_free_pages 77\noom_kill 3\noom_kill_disable 9\n")
    memory = OutOfMemoryKills(counters)
    assert not memory.take_rise()
    counters.write_text("nr_free_pages 5\noom_kill 5\n")
    assert memory.take_rise()
    assert not memory.take_rise()


def test_a_kill_of_long_ago_explains_no_death_of_today(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("oom_kill 3\n")
    now_s = 100.0
    memory = OutOfMemoryKills(counters, lambda: now_s)
    counters.write_text("oom_kill 4\n")
    memory.poll()
    now_s = 104.0
    assert not memory.take_rise()
    counters.write_text("oom_kill 5\n")
    memory.poll()
    now_s = 106.0
    assert memory.take_rise()


@pytest.mark.parametrize(
    ("membership", "found"),
    [
        ("0::/system.slice/tardigrade.service\n", "system.slice/tardigrade.service/memory.events"),
        ("0::/../elsewhere/of/the/host\n", "memory.events"),
        ("9:cpu:/x\n4:memory:/pod/1\n0::/\n", "memory/pod/1/memory.oom_control"),
        ("4:hugetlb,memory:/of/the/host\n", "memory/memory.oom_control"),
    ],
)
def test_the_count_is_that_of_the_own_control_group(tmp_path: Path, membership: str, found: str) -> None:
    (tmp_path / "cgroup").write_text(membership)
    counters = tmp_path / "root" / found
    counters.parent.mkdir(parents=True)
    counters.write_text("low 0\noom 1\noom_kill 1\n")
    assert own_counters(tmp_path / "cgroup", tmp_path / "root") == counters


def test_without_control_groups_the_count_is_the_machines(tmp_path: Path) -> None:
    assert own_counters(tmp_path / "none", tmp_path) == Path("/proc/vmstat")
    (tmp_path / "cgroup").write_text("0::/\n")
    assert own_counters(tmp_path / "cgroup", tmp_path / "root") == Path("/proc/vmstat")


@pytest.mark.parametrize("content", [None, "", "nr_free_pages 77\n"])
def test_without_a_count_nobody_died_of_it(tmp_path: Path, content: str | None) -> None:
    counters = tmp_path / "vmstat"
    if content is not None:
        counters.write_text(content)
    assert not OutOfMemoryKills(counters).take_rise()


def test_a_count_that_cannot_be_read_for_a_while_explains_nothing(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("oom_kill 4\n")
    memory = OutOfMemoryKills(counters)
    counters.unlink()
    assert not memory.take_rise()
    counters.write_text("oom_kill 4\n")
    assert not memory.take_rise()


def test_the_count_of_this_machine_can_be_read() -> None:
    assert OutOfMemoryKills()._count(-1) >= 0


def test_a_kill_of_ours_counts_only_when_it_was_the_end() -> None:

    def memory() -> bool:
        return False

    assert cause_of(decode_exit(-signal.SIGKILL), "gang", memory) == "gang"
    assert cause_of(decode_exit(-signal.SIGSEGV), "gang", memory) == "crashed"
    assert cause_of(decode_exit(1), "hung", memory) == "faulted"
    assert cause_of(decode_exit(0), "ended", memory) == "ended"
    assert cause_of(decode_exit(0), None, memory) == cause_of(decode_exit(2), None, memory) == "ended"
    assert cause_of(decode_exit(70), None, memory) == "faulted", "a library has left"
