"""A server for the length of a measurement, ours or another one, started with a command."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ops.bench.own_server import ServerDidNotStart, free_ports, own_server
from supervisor.bench.serve_load import first_model

_PORT = "{port}"
_POLL_S = 0.1
_END_S = 30.0


@dataclass(frozen=True)
class PeerServer:
    """A server that answers."""

    name: str
    url: str
    pid: int
    start_s: float  # from the command until it serves


@contextlib.contextmanager
def our_server(name: str, arguments: str) -> Iterator[PeerServer]:
    """`supervisor start` with these arguments. Raises: ServerDidNotStart."""
    with own_server([*shlex.split(arguments), "--gpus", "0", "--log-level", "warning"]) as server:
        yield PeerServer(name, server.url, server.pid, server.start_s)


@contextlib.contextmanager
def peer_server(name: str, command: str, deadline_s: float = 600.0) -> Iterator[PeerServer]:
    """A server that speaks the OpenAI API. command: as a shell reads it, without its expansions; {port} stands for a free port
    of 127.0.0.1. It has started when it has completed a prompt.

    Raises: ServerDidNotStart."""
    port = free_ports(1)[0]
    words = shlex.split(command.replace(_PORT, str(port)))
    began_s = time.monotonic()
    with tempfile.NamedTemporaryFile(prefix="peer-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    path, url = Path(log.name), f"http://127.0.0.1:{port}"
    try:
        while not _completes(url):
            if process.poll() is not None or time.monotonic() - began_s > deadline_s:
                tail = path.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise ServerDidNotStart(f"{name}: status {process.poll()}, no answer at {url}; the end of {path}:\n{tail}")
            time.sleep(_POLL_S)
        yield PeerServer(name, url, process.pid, time.monotonic() - began_s)
    finally:
        _end(process)
    path.unlink(missing_ok=True)  # only when all went well: a failure leaves the log


def _completes(url: str) -> bool:
    """True if the server completes a prompt."""
    try:
        body = json.dumps({"model": first_model(url), "prompt": "A", "max_tokens": 1}).encode()
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60.0) as reply:
            return bool(json.load(reply).get("choices"))
    except (OSError, ValueError, http.client.HTTPException):  # not yet
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL for all that still runs after a while."""
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_END_S)
