"""`supervisor logs` against a real server whose processes are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from messages.lifecycle.tree import ChildState
from messages.outcomes import ExitCode
from supervisor.log_reader import command
from supervisor.operator.calls import ask_status
from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, call, serving
from tests.support.workers.pulse import PULSE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def stream(server: RunningServer, goes_on: threading.Event) -> None:
    """Read one streamed completion to its end."""
    body = {"model": "hash-chain", "prompt": "a", "max_tokens": 2000, "seed": 1, "stream": True}
    headers = {"Content-Type": "application/json", "X-Request-Id": "mine"}
    request = urllib.request.Request(server.status()["url"] + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                goes_on.set()


def wait_until(server: RunningServer, name: str, incarnation: int) -> None:
    """Until this incarnation can serve."""
    end_s = time.monotonic() + DEADLINE_S
    while True:
        child = next(child for child in ask_status(server.run_dir, DEADLINE_S).children if child.name == name)
        if child.state is ChildState.READY and child.incarnation == incarnation:
            return
        assert time.monotonic() < end_s, child
        time.sleep(0.05)


def kill_and_wait(server: RunningServer, name: str, goes_on: threading.Event) -> None:
    """Kill a process in its first incarnation. The next one dies when the stream goes on, so that everybody has the request."""
    assert server.kill(name)
    wait_until(server, name, 2)
    goes_on.clear()
    assert goes_on.wait(DEADLINE_S)


def exit_status(process: subprocess.Popen[str]) -> int:
    """Of a process that has been told to end. One that does not shows which signals it blocks and ignores."""
    try:
        return process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"))


def logs(server: RunningServer, *flags: str) -> subprocess.CompletedProcess[str]:
    return call("logs", "--run-dir", str(server.run_dir), *flags)


def test_the_story_of_a_request_through_the_deaths_of_all_that_have_it(tmp_path: Path) -> None:
    """The terminal shows errors only; the file has all. A reader that follows goes on through every death."""
    with serving(tmp_path / "d", "--log-level", "error") as server:
        command = [sys.executable, "-m", "supervisor", "logs", "-f", "--json", "gateway", "--run-dir", str(server.run_dir)]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        goes_on = threading.Event()
        caller = threading.Thread(target=stream, args=(server, goes_on))
        with PULSE.held():
            caller.start()
            assert goes_on.wait(DEADLINE_S)
            for name in ("gateway/0", "scheduler/0", "worker/0.0"):
                kill_and_wait(server, name, goes_on)
        PULSE.end()
        caller.join(DEADLINE_S)
        assert follower.stdout is not None
        ended = next(event for line in follower.stdout if (event := json.loads(line))["event"] == "request")
        follower.send_signal(signal.SIGINT)
        assert exit_status(follower) == 0
        follower.stdout.close()
        said = logs(server, "--request", "mine").stdout
        assert logs(server, "--request", ended["request"]).stdout.count("ended") >= 1
        assert logs(server, "--request", "nobodys").stdout == ""
        assert "; it has none of wroker, but of " in logs(server, "wroker").stderr
        warned = [json.loads(line) for line in logs(server, "--json", "--level", "warning", "worker").stdout.splitlines()]
    expected = (
        "accepted",  # when its first token came, only the gateway knew that has died
        "child died  child=gateway/0.1",
        "requests of the journal go on",
        "child died  child=scheduler/0.1",
        "requests are submitted again",
        "child died  child=worker/0.0.1",
        "requests are computed again",
        "ended  ",
    )
    told = [said.find(words) for words in expected]
    assert -1 not in told, said
    assert max(told) == told[-1], "the end comes last"
    assert [line["event"] for line in warned][:2] == ["child died", "child ready again"]


def test_the_log_outlives_the_kill_of_a_whole_server_and_no_log_is_said(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as server:
        server.kill_all()
        assert "placement" in logs(server).stdout
        assert len(call("logs", "--state-dir", str(server.run_dir), "--json", "-n", "5").stdout.splitlines()) == 5
    assert call("logs", "--run-dir", str(tmp_path / "none")).returncode == 6
    assert "--since: expected" in call("logs", "--state-dir", str(server.run_dir), "--since", "noon").stderr
    nothing = call("logs", "--state-dir", str(server.run_dir), "--since", "0s")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no such line in" in nothing.stderr


@pytest.mark.parametrize("flags", [[], ["--follow"]])
def test_a_log_that_cannot_be_read_is_said_in_one_line(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "server.log").mkdir()
    shown = CliRunner().invoke(command.logs, ["--state-dir", str(tmp_path), *flags])
    said = f"supervisor: expected a log that can be read at {tmp_path / 'server.log'}, got: Is a directory\n"
    assert (shown.exit_code, shown.output) == (ExitCode.NO_SERVER, said)
