"""Run a Python script in an interpreter that has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys

DEADLINE_S = 120.0


def run_script(script: str) -> str:
    """What the script prints. Raises: CalledProcessError, TimeoutExpired."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return done.stdout.strip()
