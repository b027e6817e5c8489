"""`supervisor top` in a real terminal (tmux), against a real server whose supervisor is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.supervisor.command_line import DEADLINE_S, RunningServer, call, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")]


class Terminal:
    """A terminal of 80 x 24 with a program in it."""

    def __init__(self, socket: Path, *command: str) -> None:
        self._tmux = ["tmux", "-S", str(socket)]
        subprocess.run([*self._tmux, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", *command], check=True)
        subprocess.run([*self._tmux, "set-option", "remain-on-exit", "on"], check=True)

    def screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def wait_for(self, *texts: str) -> str:
        end_s = time.monotonic() + DEADLINE_S
        while not all(text in (seen := self.screen()) for text in texts):
            assert time.monotonic() < end_s, seen
            time.sleep(0.1)
        return seen

    def wait_matched(self, pattern: str) -> None:
        """Until the screen has what a regular expression describes."""
        end_s = time.monotonic() + DEADLINE_S
        while not re.search(pattern, seen := self.screen()):
            assert time.monotonic() < end_s, seen
            time.sleep(0.1)

    def press(self, key: str) -> None:
        subprocess.run([*self._tmux, "send-keys", key], check=True)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("run") / "d") as running:
        yield running


def test_a_screen_with_its_keys_goes_on_through_deaths(server: RunningServer, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "supervisor", "top", "--run-dir", str(server.run_dir))
    terminal = Terminal(tmp_path / "tmux", f"{' '.join(command)}; echo ended with $?; sleep 600")
    try:
        seen = terminal.wait_for("serving  hash-chain", "gateway/0 ", "q quit")
        assert len(seen.rstrip("\n").split("\n")) <= 24
        assert "up " in seen.split("\n")[0]
        terminal.press("s")
        terminal.wait_for("s sort: trouble first")
        terminal.press("p")
        terminal.wait_for("paused")
        terminal.press("p")
        assert server.kill("worker/0.0")
        terminal.wait_for("killed by SIGKILL")
        before = server.supervisor_pid
        os.kill(before, signal.SIGKILL)
        terminal.wait_for("serving  hash-chain", "q quit")
        assert server.kill("scheduler/0")
        terminal.wait_for("scheduler/0       ready        2")
        terminal.press("q")
        terminal.wait_for("ended with 0")
    finally:
        terminal.close()


def test_the_status_is_shown_again_and_again_in_80_columns_until_ctrl_c(server: RunningServer, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "supervisor", "status", "--watch", "--run-dir", str(server.run_dir))
    terminal = Terminal(tmp_path / "tmux", f"{' '.join(command)}; echo ended with $?; sleep 600")
    try:
        terminal.wait_for("gateway/0  ", "supervisor: pid")
        assert server.kill("cache_directory/0")
        terminal.wait_matched(r"cache_directory/0 [^/]*last\s+exit:\s+killed\s+by\s+SIGKILL")  # others have died in tests above
        terminal.press("C-c")
        terminal.wait_for("ended with 0")
    finally:
        terminal.close()


def test_figures_once_as_text_and_as_json(server: RunningServer) -> None:
    for said in (call("top", *flags, "--run-dir", str(server.run_dir)) for flags in (("--once",), ())):  # no terminal
        assert said.returncode == 0
        assert "tokens/s" in said.stdout
        assert "q quit" not in said.stdout
    figures = json.loads(call("top", "--once", "--json", "--run-dir", str(server.run_dir)).stdout)
    assert {child["name"] for child in figures["children"]} >= {"gateway/0", "worker/0.0"}
    assert call("top", "--once", "--run-dir", str(server.run_dir / "none")).returncode == 6
