"""A real shell completes commands, flags, choices and values."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.__main__ import main
from tests.support.supervisor.command_line import DEADLINE_S, call

SHELLS = {
    "bash": "COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _supervisor_completion supervisor;"
    ' printf "%s\\n" "${{COMPREPLY[@]}}"',
    "fish": 'complete -C "{words}"',
}

pytestmark = pytest.mark.slow


def completed(shell: str, words: str, folder: Path) -> list[str]:
    """What a shell proposes for the last of these words."""
    program = folder / "supervisor"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m supervisor "$@"\n')
    program.chmod(0o755)
    (folder / "script").write_text(call("completion", shell).stdout)
    text = f"source {folder / 'script'}; {SHELLS[shell].format(words=words)}"
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    flags = ["--norc", "--noprofile"] if shell == "bash" else ["--no-config"]
    command = [shell, *flags, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True, env=env).stdout.split()


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_a_shell_completes(shell: str, tmp_path: Path) -> None:
    assert "doctor" in completed(shell, "supervisor do", tmp_path)
    assert "--gpus" in completed(shell, "supervisor start --gp", tmp_path)
    assert "warning" in completed(shell, "supervisor logs --level w", tmp_path)


def test_every_shell_has_a_script_and_no_other() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_SUPERVISOR_COMPLETE" in call("completion", shell).stdout
    assert call("completion", "csh").returncode == 2


def test_the_second_name_of_the_command_is_completed_under_that_name() -> None:
    text = CliRunner().invoke(main, ["completion", "bash"], prog_name="tardigrade").stdout
    assert "_TARDIGRADE_COMPLETE" in text
    assert "supervisor" not in text
