"""A server that belongs to one process and ends with it, also at kill -9. It is an ordinary `supervisor start`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from messages.errors import ConfigError, Unavailable
from messages.local import guard
from messages.local.left_folders import held_by_owner, remove_left
from messages.local.start_flags import in_keywords, start_flags
from messages.outcomes import ExitCode
from messages.run_dir import SERVED, zeromq_endpoint

START_S = 3600.0  # a model may have to be downloaded first
_POLL_S = 0.05
_LOOK_S, _LOOKS = 1.0, 5  # how often a call looks for its server, and after how many looks without one it gives up
_END_S = 60.0  # more than the guard takes for all of its steps
_LONGEST_FOLDER_BYTES = 60  # what is left of a socket's path
_LAST_LINES = 20
_PREFIX, _RUN_DIR = "tardigrade-llm-", "run"
_PROGRAM, _ACTION = shlex.split("supervisor start")


class PrivateServer:
    """A running server of one model. `endpoint`: for `messages.client.Client`; `run_dir`: for the commands of `supervisor`."""

    def __init__(
        self,
        model: str = "",
        *,
        start_timeout_s: float = START_S,
        verbose: bool = False,
        on_wait: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        """Start the server and wait until it serves. `options`: the flags of `supervisor start`, as `start_flags` reads them.
        `verbose`: its log goes to standard error. `on_wait` is called again and again meanwhile.

        Raises: ConfigError when the options cannot be used, Unavailable when the start fails or takes too long.
        """
        flags = start_flags({"port": 0, "model": model or None, "log_level": "warning", **options})
        self._folder = _new_folder()
        self.run_dir, self._log = self._folder / _RUN_DIR, self._folder / "log"
        self.endpoint = zeromq_endpoint(self.run_dir)
        command = [*_start_command(), *flags, "--run-dir", str(self.run_dir)]
        owner = held_by_owner(self._folder)  # the guard keeps it
        with contextlib.nullcontext(sys.stderr) if verbose else self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", guard.__file__, str(self._folder), *command],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True, pass_fds=(owner,),
            )  # fmt: skip
        os.close(owner)
        self.close = weakref.finalize(self, _end, self._guard)
        try:
            self._wait(time.monotonic() + start_timeout_s, on_wait)
        except BaseException:  # also Ctrl-C
            self.close()
            raise

    def __enter__(self) -> PrivateServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        """True until the server has ended."""
        return self._guard.poll() is None

    async def ended(self) -> None:
        """Return some seconds after the server has ended. Its guard ends and its folder stays, or comes again soon, where only
        the first process of the server has died."""
        n_without = 0
        while n_without < _LOOKS:
            n_without = 0 if self.is_alive or self._folder.exists() else n_without + 1
            await asyncio.sleep(_LOOK_S)

    def _wait(self, end_s: float, on_wait: Callable[[], None]) -> None:
        log = self._log.open("rb") if self._log.exists() else None  # the guard removes the file
        with contextlib.nullcontext() if log is None else log:
            while not (self.run_dir / SERVED).exists():
                if (status := self._guard.poll()) is not None:
                    said = _reason(log.read() if log else b"")
                    unusable = status == ExitCode.UNUSABLE
                    if unusable and said:
                        raise ConfigError(in_keywords(said))
                    raise (ConfigError if unusable else Unavailable)(
                        said or f"the server ended with status {status} before it served"
                    )
                if time.monotonic() > end_s:
                    raise Unavailable("the server did not serve within start_timeout_s; verbose=True shows its log")
                on_wait()
                time.sleep(_POLL_S)


def is_private(run_dir: Path) -> bool:
    """Is this the run directory of such a server, which may end at any time?"""
    return run_dir.name == _RUN_DIR and run_dir.parent.name.startswith(_PREFIX)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the guard end the server, and wait for both."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _new_folder() -> Path:
    """A private directory with a path that is short enough for sockets in it. Those that killed programs have left are
    removed."""
    for parent in {Path(tempfile.gettempdir()), Path("/tmp")}:
        remove_left(parent, _PREFIX, _RUN_DIR)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(os.fsencode(folder)) > _LONGEST_FOLDER_BYTES:
        shutil.rmtree(folder)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    return folder


def _start_command() -> list[str]:
    """`supervisor start` of this Python. It is run as a program, because this package imports nothing of the server."""
    script = Path(sys.executable).with_name(_PROGRAM)
    return [*([str(script)] if script.is_file() else [sys.executable, "-m", _PROGRAM]), _ACTION]


def _reason(log: bytes) -> str:
    """Why a server has ended, by its log: what the supervisor says, else the end of the log."""
    lines = log.decode(errors="replace").splitlines()
    said = [line.partition(" ")[2] for line in lines if line.startswith((f"{_PROGRAM}: ", "Error: "))]
    return said[-1] if said else "\n".join(lines[-_LAST_LINES:])
