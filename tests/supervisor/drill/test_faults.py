"""Faults of a drill: their text, and what they find and do."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from messages.errors import ConfigError
from messages.lifecycle.tree import ChildState, ChildStatus, StatusReport, TreeState
from supervisor.drill import faults
from supervisor.drill.faults import FaultKind, PlannedFault, check_present, inflict, parse_fault, resume

NOWHERE = Path("/nonexistent")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with its own words on its command line."""
    words = [sys.executable, "-c", "import sys; sys.stdin.read()", f"drill-me-{os.getpid()}"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def child(name: str, pid: int, state: ChildState = ChildState.READY, phase: str = "") -> ChildStatus:
    return ChildStatus(name, 1, pid, state, phase, 0, 0.0, 0.0, 0, 0.0, {}, [])


@pytest.mark.parametrize(("target", "pids"), [("worker", {1}), ("standby", {2}), ("worker/0.0b", {2}), ("any", {1, 2})])
def test_a_standby_is_a_role_of_its_own(monkeypatch: pytest.MonkeyPatch, target: str, pids: set[int]) -> None:
    children = [
        child("worker/0.0", 1),
        child("worker/0.0b", 2, phase="standby"),
        child("worker/1.0", 3, state=ChildState.WELCOMED),
    ]
    monkeypatch.setattr(faults, "ask_status", lambda run_dir: StatusReport(TreeState.SERVING, 0.0, "m", "u", children))
    assert {faults._child(target, NOWHERE, random.Random(seed)) for seed in range(20)} == {
        (one.name, one.pid) for one in children if one.pid in pids
    }
    assert not faults.is_whole(NOWHERE, set())
    children.pop()
    assert faults.is_whole(NOWHERE, set())


def test_a_server_is_whole_with_the_spares_that_it_has_had(monkeypatch: pytest.MonkeyPatch) -> None:
    children, spared = [child("gateway/0", 1), child("vault/0", 2)], set[str]()
    monkeypatch.setattr(faults, "ask_status", lambda run_dir: StatusReport(TreeState.SERVING, 0.0, "m", "u", children))
    assert faults.is_whole(NOWHERE, spared)
    children[0] = msgspec.structs.replace(children[0], has_spare=True)
    assert faults.is_whole(NOWHERE, spared)
    children[0] = child("gateway/0", 3)
    assert not faults.is_whole(NOWHERE, spared)
    assert spared == {"gateway/0"}


@pytest.mark.parametrize(("pid", "found"), [(7, ("parent", 7)), (0, None)])
def test_the_parent_is_found_while_there_is_one(
    pid: int, found: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = StatusReport(TreeState.SERVING, 0.0, "m", "u", [], parent_pid=pid)
    monkeypatch.setattr(faults, "ask_status", lambda run_dir: report)
    assert faults._look("parent", NOWHERE, random.Random(1)) == found


@pytest.mark.parametrize("state", [TreeState.DRAINING, TreeState.DRAINED, TreeState.STOPPING])
def test_a_server_that_takes_no_requests_is_not_harmed(state: TreeState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "ask_status", lambda run_dir: StatusReport(state, 0.0, "m", "u", []))
    with pytest.raises(ConfigError, match=f"expected a server that takes new requests, got one that is {state.value}"):
        check_present(parse_fault("kill:gateway"), NOWHERE)


def test_texts_of_faults() -> None:
    assert parse_fault("kill:worker") == PlannedFault(FaultKind.KILL, "worker", text="kill:worker")
    assert parse_fault("kill:worker/0.1").target == "worker/0.1"
    assert parse_fault("kill:match=VLLM::Engine").target == "match=VLLM::Engine"
    assert parse_fault("pause:gateway") == PlannedFault(FaultKind.PAUSE, "gateway", 2.0, "pause:gateway")
    assert parse_fault("pause:pid=12:7.5") == PlannedFault(FaultKind.PAUSE, "pid=12", 7.5, "pause:pid=12:7.5")
    assert parse_fault("run:docker kill -s KILL a:b").target == "docker kill -s KILL a:b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker", "expected kill, pause, run before the colon, got 'worker'"),
        ("kill:", "expected kill:TARGET, got 'kill:'"),
        ("pause:worker:soon", "expected pause:TARGET:SECONDS, got 'pause:worker:soon'"),
        ("kill:pid=x", "expected a process id after pid=, got 'x'"),
        ("kill:match=(", "expected a regular expression after match=, got '('"),
        ("pause:container=[:2", "expected a regular expression after container=, got '['"),
        ("kill:wroker", "parent, fork_server, any, a name, pid=NUMBER, match=REGEX or container=REGEX, got 'wroker'"),
    ],
)
def test_bad_texts_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_fault(text)
    assert str(caught.value).startswith("fault: ")
    assert said in str(caught.value)


def test_a_drill_of_a_server_that_is_not_ours_says_so_before_it_begins() -> None:
    for text in ("kill:worker", "kill:worker/0.1", "pause:supervisor:3", "kill:parent"):
        with pytest.raises(ConfigError, match="run_dir: expected a running server in /nonexistent, got none"):
            check_present(parse_fault(text), NOWHERE)
    check_present(parse_fault(f"kill:pid={os.getpid()}"), NOWHERE)
    check_present(parse_fault("run:true"), NOWHERE)


async def test_a_kill_finds_a_process_by_its_command_line(sleeper: subprocess.Popen[bytes]) -> None:
    await inflict(parse_fault(f"kill:match=drill-me-{os.getpid()}$"), NOWHERE, random.Random(1))
    assert sleeper.wait(60) == -signal.SIGKILL


def test_a_process_id_that_is_gone_is_not_waited_for(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    with pytest.raises(ConfigError, match=f"expected a living process for 'pid={sleeper.pid}', got none"):
        check_present(parse_fault(f"kill:pid={sleeper.pid}"), NOWHERE)


async def test_a_pause_stops_a_process_and_ends(sleeper: subprocess.Popen[bytes]) -> None:
    await inflict(parse_fault(f"pause:pid={sleeper.pid}:3600"), NOWHERE, random.Random(1))
    _, status = await asyncio.to_thread(os.waitpid, sleeper.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    resume(sleeper.pid)
    _, status = await asyncio.to_thread(os.waitpid, sleeper.pid, os.WCONTINUED)
    assert os.WIFCONTINUED(status)


async def test_a_command_that_fails_is_reported() -> None:
    with pytest.raises(ConfigError, match="got exit status 3: no such container"):
        await inflict(parse_fault("run:echo no such container >&2; exit 3"), NOWHERE, random.Random(1))


def test_a_role_of_another_server_is_told_how_to_name_a_process() -> None:
    with pytest.raises(ConfigError, match=r"expected a running server in /nonexistent, got none; .*kill:match=REGEX"):
        check_present(parse_fault("kill:worker"), NOWHERE)


async def test_a_command_that_fails_without_a_word_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"got exit status 1$"):
        await inflict(parse_fault("run:false"), NOWHERE, random.Random(1))
