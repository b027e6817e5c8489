"""What the next supervisor knows of the last one: its command, and the budgets of its groups."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.children.child_record import ChildRecord
from supervisor.config.server_config import SupervisorSettings
from supervisor.directories.run_dir import RunDir
from supervisor.directories.saved_state import SavedState, SavedStateFile, StandingCommand
from supervisor.directories.server import Server
from supervisor.operator import shutdown
from supervisor.operator.display import Display
from supervisor.policy.actions import GiveUp, Retire, Start
from supervisor.policy.child_spec import Budget
from supervisor.policy.restart_policy import RestartPolicy
from supervisor.policy.states import TreeCommand
from supervisor.supervisor import Supervisor
from tests.support.supervisor.memory_spawner import MemorySpawner
from tests.support.supervisor.trees import group

DEADLINE_S = 60.0


def test_what_is_written_is_read_by_the_next_supervisor(tmp_path: Path) -> None:
    first = SavedStateFile(tmp_path / "supervisor.json")
    assert first.left == SavedState()
    command = StandingCommand(TreeCommand.DRAIN_AND_STOP, end_s=12.5, exit_status=7, reason="late", n_interrupts=1)
    policy = RestartPolicy((group("gateway/0"),))
    policy.started("gateway/0", 1)
    policy.died("gateway/0", 1, 3.0)
    first.note_command(command)
    first.note_memory(policy.memory())
    left = SavedStateFile(tmp_path / "supervisor.json").left
    assert left.command == command
    assert left.memory.histories["gateway/0"].restarts_s == [3.0]


def test_the_beginning_of_the_server_is_that_of_its_first_supervisor(tmp_path: Path) -> None:
    for now_s in (12.5, 99.0):
        saved = SavedStateFile(tmp_path / "supervisor.json")
        saved.note_beginning(now_s)
        assert saved.now.began_s == 12.5


def test_an_adopted_child_is_as_old_as_its_process(tmp_path: Path) -> None:
    spawner = MemorySpawner()
    (spec,) = group("gateway/0").children
    first, second = ChildRecord(spec), ChildRecord(spec)
    process = spawner.spawn(spec, lambda status: None)
    first.begin_incarnation(1, process, "", 10.0)
    second.adopt(first.facts, process, "ipc://x", 70.0)
    assert second.status(75.0, False).uptime_s == 65.0


@pytest.mark.parametrize("content", [b"", b"{", b'{"order": 3}', b"\xff"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "supervisor.json").write_bytes(content)
    assert SavedStateFile(tmp_path / "supervisor.json").left == SavedState()


def test_budgets_go_on_where_the_last_supervisor_died() -> None:
    tree = (group("gateway/0", budget=Budget(restarts=2, window_s=60.0, start_attempts=9, restart_attempts=9)),)
    memory = RestartPolicy(tree).memory()
    for incarnation in (1, 2):
        policy = RestartPolicy(tree)
        policy.recall(memory)
        policy.started("gateway/0", incarnation)
        assert isinstance(policy.died("gateway/0", incarnation, float(incarnation))[0], Start)
        memory = policy.memory()
    last = RestartPolicy(tree)
    last.recall(memory)
    assert last.restarts_left("gateway/0", 2.5) == 0
    last.started("gateway/0", 3)
    assert isinstance(last.died("gateway/0", 3, 3.0)[0], GiveUp)


def test_a_retired_group_stays_retired_and_its_pauses_go_on_growing() -> None:
    budget = Budget(restarts=0, window_s=60.0, start_attempts=9, restart_attempts=9)
    tree = (group("speculation/0", budget=budget, is_optional=True),)
    pauses, memory = [], RestartPolicy(tree).memory()
    for incarnation in (1, 2, 3):
        policy = RestartPolicy(tree)
        policy.recall(memory)
        policy.started("speculation/0", incarnation)
        retire = policy.died("speculation/0", incarnation, 1.0)[0]
        assert isinstance(retire, Retire)
        pauses.append(retire.pause_s)
        memory = policy.memory()
    assert pauses == [5.0, 10.0, 20.0]


@pytest.fixture(autouse=True)
def no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that exist in name only do not die of SIGKILL."""
    monkeypatch.setattr(shutdown, "_PROOF_S", 0.05)


async def ended_with(tmp_path: Path, command: StandingCommand, meanwhile: Callable[[Supervisor], None] = lambda _: None) -> int:
    """The exit status of a supervisor whose predecessor had this command. Its children do not exist any more."""
    run_dir = RunDir.acquire(tmp_path / "d")
    try:
        SavedStateFile(run_dir.saved_state_path).note_command(command)
        server = Server((group("gateway/0"),), run_dir, SupervisorSettings(), "stub", "http://nowhere", "console", "error")
        supervisor = Supervisor(server, Display("stub", "", "", is_live=False), MemorySpawner())
        task = asyncio.ensure_future(supervisor.run())
        asyncio.get_running_loop().call_soon(meanwhile, supervisor)
        return await asyncio.wait_for(task, DEADLINE_S)
    finally:
        run_dir.release()


async def test_a_stop_that_was_under_way_starts_nobody_again(tmp_path: Path) -> None:
    started = []
    command = StandingCommand(TreeCommand.STOP, exit_status=4, reason="the server gave up")
    status = await ended_with(
        tmp_path, command, lambda supervisor: started.extend(r.n_starts for r in supervisor.children.records)
    )
    assert (status, started) == (4, [0])


async def test_a_forced_stop_goes_on_as_a_forced_one(tmp_path: Path) -> None:
    assert await ended_with(tmp_path, StandingCommand(TreeCommand.STOP, is_forced=True)) == 5


async def test_a_repeated_interrupt_does_not_force_and_a_new_one_does(tmp_path: Path) -> None:
    """The parent sends the signals of the last supervisor again. One Ctrl-C must not become two."""
    seen = []

    def interrupt(supervisor: Supervisor) -> None:
        supervisor.commands.has_served = True
        for _ in range(2):
            seen.append(supervisor.commands.present)
            supervisor.commands._on_signal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    command = StandingCommand(TreeCommand.DRAIN, end_s=0.0, n_interrupts=1)
    assert await ended_with(tmp_path, command, interrupt) == 5
    assert seen == [TreeCommand.DRAIN, TreeCommand.DRAIN], "the repeated one changes nothing"
