"""Continue's command line: a turn that runs a command and reads its result, over chat completions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

URL, MODEL, PROGRAM = os.environ["CLIENT_URL"] + "/v1", os.environ["CLIENT_MODEL"], os.environ["CLIENT_PROGRAM"]
CONFIG = f"""
name: Tardigrade
version: 1.0.0
schema: v1
models:
  - name: {MODEL}
    provider: openai
    model: {MODEL}
    apiBase: {URL}
    apiKey: none
    roles: [chat]
    capabilities: [tool_use]
"""


def test_a_command_is_run_and_its_result_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    command = [PROGRAM, "-p", "--auto", "--config", "config.yaml", "Find it."]
    variables = os.environ | {"HOME": str(tmp_path), "CONTINUE_GLOBAL_DIR": str(tmp_path), "CONTINUE_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    (session,) = [file for file in (tmp_path / "sessions").glob("*.json") if file.name != "sessions.json"]
    assert "found-42" in session.read_text()
