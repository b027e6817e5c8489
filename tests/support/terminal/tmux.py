"""A program in a terminal of tmux: keys go in, the screen is read."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 120.0
_POLL_S = 0.05
HAS_TMUX = shutil.which("tmux") is not None


class TmuxTerminal:
    """A terminal of 80 x 24 characters."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def call(self, *argv: str) -> str:
        """Run one command of tmux."""
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout

    def type(self, text: str, *keys: str) -> None:
        """Type a text as it stands there, then press keys by tmux's names."""
        if text:
            self.call("send-keys", "-l", text)
        if keys:
            self.call("send-keys", *keys)

    def screen(self) -> str:
        """Everything that was shown, without the breaks of long lines."""
        return self.call("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, text: str, n_times: int = 1) -> str:
        """Wait until the text was shown so many times; returns the screen."""
        end_s = time.monotonic() + DEADLINE_S
        while (screen := self.screen()).count(text) < n_times:
            assert time.monotonic() < end_s, screen
            time.sleep(_POLL_S)
        return screen


@contextmanager
def terminal_with(folder: Path, command: list[str], environment: Mapping[str, str] | None = None) -> Iterator[TmuxTerminal]:
    """A terminal that runs `command` in a shell, and says "ended STATUS" after it."""
    terminal = TmuxTerminal(folder / "tmux")
    shell = f"{shlex.join(command)}; echo ended $?; exec cat"
    subprocess.run(
        ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell],
        env={**os.environ, "TERM": "xterm", **(environment or {})}, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    try:
        yield terminal
    finally:
        terminal.call("kill-server")
