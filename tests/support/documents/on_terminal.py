"""Runs a command of a page on a terminal of its own, and types what ends it there."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 65_536


@dataclass(frozen=True)
class OnTerminal:
    """A command that wants a terminal: by how it begins, what it shows when it can be typed to, and what is typed then."""

    begins: str
    shows: str
    typed: str


ON_TERMINAL = (
    OnTerminal("supervisor chat", "/help names the commands", "/exit\r"),
    OnTerminal("supervisor top", "q quit", "q"),
    OnTerminal("supervisor rm", "[y/N]", "y\r"),
    OnTerminal("supervisor logs -f", "(UTC)", "\x03"),  # a day before its first line; Ctrl-C
)


def terminal_for(command: str) -> OnTerminal | None:
    """How this command is run on a terminal; None for one that needs none."""
    return next((one for one in ON_TERMINAL if command.startswith(one.begins) and "|" not in command), None)


def run_on_terminal(
    command: str, how: OnTerminal, folder: Path, environment: Mapping[str, str], deadline_s: float
) -> tuple[int, str]:
    """Run it in bash in a folder; returns its exit status and what it has shown. Raises: AssertionError when it does not end
    in time, with what it has shown."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env={**environment, "TERM": "xterm"}, stdin=its, stdout=its, stderr=its,
        start_new_session=True, preexec_fn=_own_terminal,
    )  # fmt: skip
    os.close(its)
    shown, is_typed, end_s = b"", False, time.monotonic() + deadline_s
    try:
        while True:
            assert time.monotonic() < end_s, f"{command}\n{shown.decode(errors='replace')}"
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(ours, _MOST_BYTES)
            except OSError:  # its other side is closed: the command has ended
                break
            shown += piece
            if not is_typed and how.shows.encode() in shown:
                is_typed = True
                os.write(ours, how.typed.encode())
        status = process.wait(deadline_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)
    return status, shown.decode(errors="replace")


def _own_terminal() -> None:
    """Make standard input the terminal of the new session, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
