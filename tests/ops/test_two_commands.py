"""The commands `supervisor` and `tardigrade`: where PyPI's package supervisor comes first on Python's path, and at Ctrl-C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tardigrade_serve
from messages.outcomes import ExitCode

REPO = Path(__file__).parents[2]
DEADLINE_S = 120.0


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with what PyPI's package supervisor installs, in short."""
    package = tmp_path / "theirs" / "supervisor"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("# this is a package\n")
    (package / "supervisord.py").write_text("")
    return package.parent


def run(command: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run one of our commands with --version, and with these folders on Python's path."""
    script = f"import sys, tardigrade_serve; sys.argv[1:] = ['--version']; tardigrade_serve.{command}()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-P", "-c", script], env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_supervisor_says_which_package_hides_ours(theirs: Path) -> None:
    refused = run("supervisor", theirs, REPO)
    assert (refused.returncode, refused.stdout) == (ExitCode.UNUSABLE, "")
    (said,) = refused.stderr.splitlines()
    assert said.startswith(f"supervisor: expected Tardigrade's module `supervisor` in {REPO}, got that of PyPI's package")
    assert f"in {theirs}/supervisor, which comes first" in said
    assert "the command `tardigrade` works here" in said


def test_tardigrade_works_beside_it_in_every_order(theirs: Path) -> None:
    for path in ((theirs, REPO), (REPO, theirs)):
        assert run("tardigrade", *path).stdout.startswith("Tardigrade ")
    assert run("supervisor", REPO, theirs).stdout.startswith("Tardigrade ")


def test_processes_that_tardigrade_starts_find_our_modules_too(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    monkeypatch.setattr(sys, "path", [str(theirs), *sys.path])
    monkeypatch.setattr(tardigrade_serve, "foreign_folder", lambda: str(theirs / "supervisor"))
    monkeypatch.setattr(tardigrade_serve, "_run", lambda: None)
    tardigrade_serve.tardigrade()
    assert (sys.path[0], os.environ["PYTHONPATH"]) == (str(REPO), f"{REPO}{os.pathsep}{theirs}")


def test_what_the_removal_of_the_other_package_took_along_is_named(theirs: Path, tmp_path: Path) -> None:
    """Both were in one folder; pip has removed the one file that both have, and another copy is elsewhere."""
    ours = tmp_path / "ours"
    (ours / "supervisor").mkdir(parents=True)
    shutil.copy(REPO / "tardigrade_serve.py", ours)
    (ours / "supervisor" / "__main__.py").write_text("")
    refused = run("tardigrade", ours, theirs)
    assert refused.returncode == ExitCode.UNUSABLE
    assert "--force-reinstall --no-deps tardigrade-serve brings it back" in refused.stderr


def test_ctrl_c_while_the_program_is_imported_shows_no_traceback(tmp_path: Path) -> None:
    package = tmp_path / "supervisor"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise KeyboardInterrupt\n")
    stopped = run("supervisor", tmp_path, REPO)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (ExitCode.FAULT, "", "\nAborted!\n")
