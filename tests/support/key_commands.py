"""The command with which an operator makes API keys, for tests with a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import DEADLINE_S


def keys(state: Path, *arguments: str) -> str:
    """What `supervisor keys` prints."""
    command = [sys.executable, "-m", "supervisor", "keys", *arguments, "--state-dir", str(state)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout.strip()
