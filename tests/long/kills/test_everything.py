"""Everything dies at once, and the next start ends every request that the server had accepted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def test_every_accepted_request_ends_after_a_kill_of_all_processes(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "ops.bench", "everything", "--rounds", "3", "--server-arg=--vault", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert (row["rounds"], row["streams"], row["right"], row["lost"], row["wrong"]) == (3, 72, 72, 0, 0)
