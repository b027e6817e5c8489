"""A tenant that asks over HTTP and measures how long its answers take."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Sequence

ANSWER_S = 120.0  # that an answer may take


class TimedTenant:
    """A tenant with one connection."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, prompt: Sequence[int], max_tokens: int = 1) -> tuple[int, float]:
        """Ask for a whole answer; returns its status, and the seconds that it took. Raises: OSError."""
        began_s = time.perf_counter()
        self._connection.request("POST", "/v1/completions", _body(prompt, max_tokens), self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, time.perf_counter() - began_s

    def begin_unread(self, prompt: Sequence[int], max_tokens: int) -> None:
        """Ask for a stream, and read nothing of it. Raises: OSError."""
        self._connection.request("POST", "/v1/completions", _body(prompt, max_tokens, stream=True), self._headers)

    def status_now(self) -> int:
        """The status of a stream that was not read. Raises: OSError, http.client.HTTPException."""
        return self._connection.getresponse().status

    def close(self) -> None:
        """Leave."""
        self._connection.close()


def new_key(state: str, tenant: str) -> str:
    """A key of a tenant, at the server with this state directory."""
    call = [sys.executable, "-m", "supervisor", "keys", "add", "--tenant", tenant, "--state-dir", state]
    return subprocess.run(call, check=True, capture_output=True, text=True, timeout=ANSWER_S).stdout.strip()


def _body(prompt: Sequence[int], max_tokens: int, *, stream: bool = False) -> str:
    return json.dumps({"prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0, "stream": stream})
