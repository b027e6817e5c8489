"""A stand-in for systemd: it holds the HTTP socket, passes it to the servers that it starts, and hears what they notify."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from supervisor.operator.ending import kill_server
from tests.support.real_server import WITHOUT_SPARES
from tests.support.workers.pulse import PULSE

DEADLINE_S = 120.0
# Puts the socket where the protocol wants it, and becomes the server: it has the process id that the socket is for
_LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="http")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServiceManager:
    """Holds a socket at a free port. `folder`: for the socket of notifications and for run directories."""

    def __init__(self, folder: Path) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.run_dir = folder / "run"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Start a server of the hash chain that gets the socket. Its process is the main one of the service."""
        fd = os.dup(self.listener.fileno())
        place = ("--port", str(self.port), "--run-dir", str(self.run_dir))
        flags = ("--model", "hash-chain", *place, *WITHOUT_SPARES, *PULSE.flags)
        command = [sys.executable, "-m", "supervisor", "start", *flags]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER, str(fd), *command], pass_fds=[fd], env=self._environment, stdin=subprocess.DEVNULL
        )
        os.close(fd)
        return self.process

    def wait_for(self, beginning: str) -> str:
        """The next notification that begins so; others before it are skipped. Raises: AssertionError after the deadline."""
        end_s, heard = time.monotonic() + DEADLINE_S, []
        while (left_s := end_s - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                heard.append(self._socket.recv(4096).decode())
            except TimeoutError:
                break
            if heard[-1].startswith(beginning):
                return heard[-1]
        raise AssertionError(f"expected {beginning}, got {heard}")

    def stop(self) -> None:
        """SIGTERM to the main process."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End everything that still runs."""
        if self.process is not None:
            kill_server(self.run_dir, DEADLINE_S)  # also one whose main process is another one now
            self.process.kill()
            self.process.wait(DEADLINE_S)
        self.listener.close()
        self._socket.close()
