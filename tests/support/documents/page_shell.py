"""Runs the commands of a page, one after the other, with a server of the hash-chain model behind them."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from ops.bench.own_server import OwnServer, free_ports, own_server
from tests.support.documents.code_blocks import REPO
from tests.support.documents.command_readers import parts_of
from tests.support.tls.certificates import Authority

DEADLINE_S = 240.0
FIRST_SERVER = ("--replicas", "2")  # of a page whose commands need a server that it does not start
_MODEL = ("--model", "hash-chain", "--model-name")
_CHEAP = ("--no-standby", "--log-level", "info", "--set", "worker.hash_chain_step_s=0.01")  # a flag of the page wins
_NOT_TAKEN = ("--model", "--port", "--config")
_ASKS_A_SERVER, _ASKS_FILES = ("supervisor ", "curl ", "echo "), ("supervisor keys ", "supervisor tenants ")
_FOUND_SOMETHING = 1  # the exit status of the doctor
_SHIM = """#!/bin/sh
exec {python} -m tests.support.documents.page_program {port} "$@"
"""


class PageShell:
    """A folder with the files that pages speak of, a program `supervisor` that leads to the server here, and this server."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder, self._servers = folder, contextlib.ExitStack()
        self._server: OwnServer | None = None
        self._variables = {"ID": "req-unknown", "KEY": "", "ADMIN_KEY": ""}
        self._make_files()

    def __enter__(self) -> PageShell:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._servers.close()

    def run(self, command: str) -> str:
        """Run one line; returns what it has printed. Raises: AssertionError with what it said where it fails."""
        if command.startswith("supervisor start"):
            self.start(*parts_of(command)[0][2:])
            return ""
        if command.startswith("export "):
            self._variables |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            return ""
        if self._server is None and self._needs_server(command):
            self.start(*FIRST_SERVER)
        here = command.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}").replace("localhost:8000", f"localhost:{self.port}")
        done = subprocess.run(
            ["bash", "-c", here], cwd=self._folder, env=self._environment(), capture_output=True, text=True, timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        allowed = (0, _FOUND_SOMETHING) if command.startswith("supervisor doctor") else (0,)
        assert done.returncode in allowed, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert not command.startswith("curl") or '"error"' not in done.stdout, f"{command}\n{done.stdout}"
        self._learn(command, done.stdout)
        return done.stdout

    def start(self, *given: str) -> None:
        """A server with these flags in the place of the one before. Raises: ServerDidNotStart."""
        self._servers.close()
        state = ["--state-dir", str(self._folder / "state" / "tardigrade" / str(self.port))]
        name = "hash-chain" if "smollm2" in given else "smollm2"  # a fallback model has a name of its own
        flags = [*_MODEL, name, *_CHEAP, *state, *without(given)]
        with contextlib.chdir(self._folder):
            self._server = self._servers.enter_context(own_server(flags, port=self.port, environment=self._environment()))

    def _needs_server(self, command: str) -> bool:
        return command.startswith(_ASKS_A_SERVER) and not command.startswith(_ASKS_FILES)

    def _learn(self, command: str, printed: str) -> None:
        """Keep a key that was made: later commands show it."""
        if command.startswith("supervisor keys add"):
            self._variables["ADMIN_KEY" if "--role admin" in command else "KEY"] = printed.strip().splitlines()[-1]

    def _environment(self) -> dict[str, str]:
        own = {"PATH": f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(self._folder)}
        own["PYTHONPATH"] = str(REPO)  # where the program of the shim is: a page's folder is another one
        return {**os.environ, **own, **self._variables, "XDG_STATE_HOME": str(self._folder / "state")}

    def _make_files(self) -> None:
        (self._folder / "bin").mkdir()
        (self._folder / "state" / "tardigrade").mkdir(parents=True, mode=0o700)
        shim = self._folder / "bin" / "supervisor"
        shim.write_text(_SHIM.format(python=shlex.quote(sys.executable), port=self.port))
        shim.chmod(0o755)
        (self._folder / ".config" / "fish" / "completions").mkdir(parents=True)
        make_files(self._folder)


def make_files(folder: Path) -> None:
    """The files that pages name without making them: a configuration, a certificate, notes."""
    (folder / "server.toml").write_text("[gateway]\nmax_active_requests = 64\n")
    (folder / "notes.txt").write_text("A tardigrade is a small animal.\n")
    signed = Authority(folder / "authority").signed()
    (folder / "server.pem").write_bytes(signed.cert.read_bytes())
    (folder / "server.key").write_bytes(signed.key.read_bytes())
    (folder / "server.key").chmod(0o600)


def without(flags: tuple[str, ...]) -> list[str]:
    """Flags of a page without those that would find no file, or that a test decides."""
    kept, words = list[str](), iter(flags)
    for word in words:
        if word in _NOT_TAKEN:
            next(words)
        else:
            kept.append(word)
    return kept
