"""Claude Code: a turn that runs a command and reads its result, over Messages, and a prompt that the context does not hold."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

URL, MODEL, PROGRAM = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"], os.environ["CLIENT_PROGRAM"]
OWN = {
    "ANTHROPIC_BASE_URL": URL,
    "ANTHROPIC_AUTH_TOKEN": "none",
    "ANTHROPIC_MODEL": MODEL,
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "256",
}


def run(folder: Path, *options: str) -> list[dict[str, Any]]:
    """What `claude -p` has told."""
    command = [PROGRAM, "-p", "Find it.", "--output-format", "stream-json", "--verbose", *options]
    variables = os.environ | OWN | {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder)}
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_command_is_run_and_its_result_is_read(tmp_path: Path) -> None:
    told = run(tmp_path, "--system-prompt", "You run commands.", "--tools", "Bash", "--allowedTools", "Bash")
    assert (told[-1]["type"], told[-1]["is_error"]) == ("result", False), told[-1]
    assert "found-42" in json.dumps([one for one in told if one["type"] == "user"])


def test_a_prompt_that_is_too_long_is_told(tmp_path: Path) -> None:
    told = run(tmp_path)
    assert (told[-1]["type"], told[-1]["is_error"]) == ("result", True)
    assert "Prompt is too long" in told[-1]["result"]
