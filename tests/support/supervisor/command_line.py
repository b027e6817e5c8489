"""Commands of the supervisor in processes of their own, and a whole hash-chain server behind them."""

from __future__ import annotations

import codecs
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from supervisor.directories.run_dir_files import read_pid
from supervisor.operator.calls import ask_status, is_alive
from supervisor.operator.ending import kill_server
from tests.support.real_server import WITHOUT_SPARES
from tests.support.workers.pulse import PULSE

DEADLINE_S = 120.0


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the supervisor to its end."""
    command = [sys.executable, "-m", "supervisor", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


class RunningServer:
    """A server in a process of its own, without spares unless a flag says so."""

    def __init__(self, run_dir: Path, *flags: str) -> None:
        self.run_dir = run_dir
        command = [
            sys.executable,
            "-m",
            "supervisor",
            "start",
            "--model",
            "hash-chain",
            "--run-dir",
            str(run_dir),
            "--port",
            "0",
            *WITHOUT_SPARES,
            *PULSE.flags,
        ]
        self.process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)
        self.said = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a read may end within a character

    def wait_said_anew(self, text: str) -> None:
        """As `wait_said`, of words that are read from now on: what was read before may have the same."""
        self.said = ""
        self.wait_said(text)

    def wait_said(self, text: str) -> None:
        """Read its words until these have come; fails at the deadline."""
        assert self.process.stderr is not None
        end_s = time.monotonic() + DEADLINE_S
        while text not in self.said:
            left_s = end_s - time.monotonic()
            assert left_s > 0, self.said
            readable, _, _ = select.select([self.process.stderr], [], [], left_s)
            if readable:
                some = os.read(self.process.stderr.fileno(), 65_536)
                assert some, self.said
                self.said += self._decoder.decode(some)

    def status(self) -> dict:
        """Its report. The command waits five seconds for an answer; a busy machine may need more."""
        end_s = time.monotonic() + DEADLINE_S
        while (said := call("status", "--json", "--run-dir", str(self.run_dir))).returncode:
            assert time.monotonic() < end_s, said.stderr
        return json.loads(said.stdout)

    def kill(self, name: str) -> bool:
        """kill -9 of a child; False when it is dead already. Asked without a command: that would take too long."""
        pid = next(child.pid for child in ask_status(self.run_dir, DEADLINE_S).children if child.name == name)
        with suppress(ProcessLookupError):
            if pid:  # 0 is nobody's, and to kill it would be to kill ourselves
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def complete(self, prompt: str) -> str:
        """One completion over HTTP; raises when it fails."""
        body = {"model": "hash-chain", "prompt": prompt, "max_tokens": 8, "seed": 1, "temperature": 1.0}
        url = f"{ask_status(self.run_dir, DEADLINE_S).url}/v1/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)["choices"][0]["text"]

    @property
    def supervisor_pid(self) -> int:
        """The present supervisor: a child of its parent."""
        pid = read_pid(self.run_dir)
        assert pid is not None
        return pid

    def kill_all(self) -> None:
        """kill -9 of the parent, the supervisor, and every child."""
        if not is_alive(self.run_dir):
            self.process.kill()
        kill_server(self.run_dir, DEADLINE_S)
        self.process.wait(DEADLINE_S)

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for its exit status."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def serving(run_dir: Path, *flags: str) -> Iterator[RunningServer]:
    """A server that serves; killed at the end."""
    running = RunningServer(run_dir, *flags)
    try:
        running.wait_said("Tardigrade serves hash-chain")
        yield running
    finally:
        running.kill_all()
        if running.process.stderr is not None:
            running.process.stderr.close()
