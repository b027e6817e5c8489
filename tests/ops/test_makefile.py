"""The rule of the Makefile that makes the virtual environment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
_WITHOUT_ENSUREPIP = """#!/bin/sh
# as Debian's python3 without python3-venv: the interpreter is there, pip is not, and the status is 1
[ "$2" = venv ] || exit 0
mkdir -p "$3/bin" && touch "$3/bin/python" "$3/bin/python3"
echo 'ensurepip is not available'
exit 1
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_an_environment_that_could_not_be_made_is_made_again(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(_WITHOUT_ENSUREPIP)
    fake.chmod(0o755)
    venv = tmp_path / "venv"
    command = ["make", "-f", str(MAKEFILE), f"PYTHON={fake}", f"VENV={venv}", f"{venv}/bin/python"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, "ensurepip is not available" in done.stdout) == (2, True)
    assert list((venv / "bin").iterdir()) == []
