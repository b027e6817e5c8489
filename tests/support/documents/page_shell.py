"""Runs the commands of a page, one after the other, with a server of the hash-chain model behind them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from messages.ids import role_of
from ops.bench.own_server import OwnServer, free_ports, own_server
from supervisor.operator.calls import ask_status
from tests.support.documents.code_blocks import REPO
from tests.support.documents.command_readers import parts_of
from tests.support.documents.on_terminal import OnTerminal, run_on_terminal, terminal_for
from tests.support.documents.page_models import LLAMA_8B, hub_files
from tests.support.hub.fake_hub import fake_hub
from tests.support.tls.certificates import Authority

DEADLINE_S = 240.0
FIRST_SERVER = ("--replicas", "2")  # of a page whose commands need a server that it does not start
_MODEL = ("--model", "hash-chain", "--model-name")
_CHEAP = ("--no-standby", "--log-level", "info", "--set", "worker.hash_chain_step_s=0.01")  # a flag of the page wins
_NOT_TAKEN = ("--model", "--port", "--config")
_ASKS_A_SERVER, _ASKS_FILES = ("supervisor ", "curl ", "echo "), ("supervisor keys ", "supervisor tenants ")
_FOLLOWS_LOG = "supervisor logs -f"
_STATUSES = {
    "supervisor doctor": (0, 1),  # it has found something
    "supervisor plan --model /models/llama-3.1-8b --gpu T4": (2,),  # the page shows why the model does not fit
}
_PLACES = {"/models/": "/models/", "/etc/": "/etc/", "/usr/lib/": "/usr/lib/", "/opt/tardigrade/.venv/bin/": "/bin/"}
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
        self._hub = contextlib.ExitStack()
        self._variables |= {"HF_ENDPOINT": "", "HF_HOME": str(folder / "hf"), "TARDIGRADE_CACHE": str(folder / "converted")}

    def __enter__(self) -> PageShell:
        self._variables["HF_ENDPOINT"] = self._hub.enter_context(fake_hub({"org/name": hub_files(self._folder)})).url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._servers.close()
        self._hub.close()

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
        if command.startswith(_FOLLOWS_LOG):
            self._kill_a_worker()
        status, printed, said = self._done(self._here(command), terminal_for(command))
        allowed = next((statuses for begins, statuses in _STATUSES.items() if command.startswith(begins)), (0,))
        assert status in allowed, f"{command}\n{printed[-2000:]}{said[-2000:]}"
        assert not command.startswith("curl") or '"error"' not in printed, f"{command}\n{printed}"
        self._learn(command, printed)
        return printed

    def _here(self, command: str) -> str:
        """The command with the port of this server, and with folders of the page's machine inside this folder."""
        for host in ("127.0.0.1", "localhost"):
            command = command.replace(f"{host}:8000", f"{host}:{self.port}")
        for there, here in _PLACES.items():
            command = re.sub(rf"(?<![\w.]){there}", f"{self._folder}{here}", command)
        return command

    def _done(self, command: str, terminal: OnTerminal | None) -> tuple[int, str, str]:
        """Exit status, output and errors of a command; on a terminal both are one."""
        if terminal is not None:
            status, shown = run_on_terminal(command, terminal, self._folder, self._environment(), DEADLINE_S)
            assert terminal.shows in shown, f"{command}\n{shown}"
            return status, shown, ""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._folder, env=self._environment(), capture_output=True, text=True,
            timeout=DEADLINE_S, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def start(self, *given: str) -> None:
        """A server with these flags in the place of the one before. Raises: ServerDidNotStart."""
        self._servers.close()
        state = ["--state-dir", str(self._folder / "state" / "tardigrade" / str(self.port))]
        name = "hash-chain" if "smollm2" in given else "smollm2"  # a fallback model has a name of its own
        flags = [*_MODEL, name, *_CHEAP, *state, *without(given)]
        with contextlib.chdir(self._folder):
            self._server = self._servers.enter_context(own_server(flags, port=self.port, environment=self._environment()))

    def _kill_a_worker(self) -> None:
        """Something that the log tells at every level."""
        assert self._server is not None
        children = ask_status(self._server.run_dir).children
        os.kill(next(child.pid for child in children if role_of(child.name) == "worker" and child.pid), signal.SIGKILL)

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
        python = self._folder / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        (self._folder / "ops").symlink_to(REPO / "ops")
        folders = (".config/fish/completions", "etc/prometheus", "etc/systemd/system", "usr/lib/sysusers.d")
        for name in (*folders, "models/llama-3.1-8b"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "models/llama-3.1-8b/config.json").write_text(json.dumps(LLAMA_8B))
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
