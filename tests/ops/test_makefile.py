"""The rules of the Makefile that make the virtual environment and that run the tests."""

from __future__ import annotations

import os
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

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


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


@pytest.mark.parametrize(("tests", "types"), [(0, 0), (1, 0), (0, 1)])
def test_tests_and_types_both_have_to_pass_and_compiled_modules_are_kept(tmp_path: Path, tests: int, types: int) -> None:
    """The types are checked beside the tests. Who forbids Python to write compiled modules forbids it to all but these."""
    programs = {
        "python": f'case "$*" in *pytest*) echo "tests, [$PYTHONDONTWRITEBYTECODE]"; exit {tests};; esac',
        "pyright": f"echo types; exit {types}",
        "ruff": "",
    }
    (tmp_path / "bin").mkdir()
    for name, lines in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for stamp in ("installed.serve", "installed.test"):
        (tmp_path / stamp).touch()
    command = ["make", "-f", str(MAKEFILE), f"VENV={tmp_path}", "test"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=MAKEFILE.parent, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode == 0) is (tests == types == 0)
    assert "tests, []" in done.stdout
    assert ("types" in done.stdout) is (types != 0)
