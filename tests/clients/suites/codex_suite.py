"""Codex CLI: a turn that runs a command and reads its result, over Responses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

URL, MODEL, PROGRAM = os.environ["CLIENT_URL"] + "/v1", os.environ["CLIENT_MODEL"], os.environ["CLIENT_PROGRAM"]
CONFIG = """
model = "{model}"
model_provider = "tardigrade"
model_context_window = 8192
model_instructions_file = "{instructions}"
sandbox_mode = "danger-full-access"
approval_policy = "never"

[model_providers.tardigrade]
name = "Tardigrade"
base_url = "{url}"
wire_api = "responses"
"""


def run(folder: Path) -> list[dict[str, Any]]:
    """What `codex exec` has told. Raises: AssertionError with all that it has said if it fails."""
    instructions = folder / "instructions.md"
    instructions.write_text("You run commands.")
    (folder / "config.toml").write_text(CONFIG.format(model=MODEL, url=URL, instructions=instructions))
    command = [PROGRAM, "exec", "--json", "--skip-git-repo-check", "Find it."]
    variables = os.environ | {"HOME": str(folder), "CODEX_HOME": str(folder)}
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_command_is_run_and_its_result_is_read(tmp_path: Path) -> None:
    told = run(tmp_path)
    items = [one["item"] for one in told if one["type"] == "item.completed"]
    (ran,) = [item for item in items if item["type"] == "command_execution"]
    assert "found-42" in ran["aggregated_output"]
    assert items[-1]["type"] == "agent_message"
    assert told[-1]["type"] == "turn.completed"
