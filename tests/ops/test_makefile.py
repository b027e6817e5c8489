"""The rules of the Makefile that make the virtual environment and that run the tests, how deep these look, and what continuous
integration makes of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ops.slowest_tests import slowest

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


def make(target: str, venv: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Make a target in an environment whose programs are these lines of a shell."""
    (venv / "bin").mkdir()
    for name, lines in programs.items():
        (venv / "bin" / name).write_text(f"#!/bin/sh\n{lines}\n")
        (venv / "bin" / name).chmod(0o755)
    for stamp in ("installed.serve", "installed.test"):
        (venv / stamp).touch()
    there = [part for name in ("client-env", "browser-env", "monitoring-env") for part in ("-o", name)]
    command = ["make", "-f", str(MAKEFILE), f"VENV={venv}", *there, target]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=MAKEFILE.parent, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_only_what_a_server_imports_is_compiled_when_it_is_installed(tmp_path: Path) -> None:
    """Also for who forbids Python to write compiled modules. The fake interpreter tells of each call of it."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\necho "call $1 $2 $3 $* [$PYTHONDONTWRITEBYTECODE]"\n')
    python.chmod(0o755)
    command = ["make", "-f", str(MAKEFILE), f"VENV={tmp_path}", f"{tmp_path}/installed.test"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=MAKEFILE.parent, env=environment, capture_output=True, text=True, timeout=60, check=True)
    calls = [call.split() for call in done.stdout.split("call ")[1:]]
    pips = [call for call in calls if call[:3] == ["-m", "pip", "install"]]
    assert len(pips) == 4
    assert all("--no-compile" in call for call in pips)
    (imports,) = [call for call in calls if call[0] == "-c"]
    assert "import_engine" in imports
    assert "[]" in imports


@pytest.mark.parametrize(
    ("servers", "actors", "others", "types", "is_right"),
    [
        *((0, 0, 0, 0, True), (1, 0, 0, 0, False), (0, 1, 0, 0, False), (0, 0, 1, 0, False), (0, 0, 0, 1, False)),
        *((5, 0, 5, 0, True), (5, 5, 0, 0, True), (0, 5, 5, 0, True), (5, 5, 1, 0, False), (5, 5, 5, 0, False)),
    ],
)
def test_tests_and_types_all_have_to_pass_and_compiled_modules_are_kept(
    tmp_path: Path, servers: int, actors: int, others: int, types: int, is_right: bool
) -> None:
    """The types and the tests without servers, in groups, are checked beside the others; 5 is what pytest ends with where ARGS
    selects no test. Who forbids Python to write compiled modules forbids it to all but these."""
    lines = (
        f'case "$*" in *ignore=tests/actors*) echo "servers [$PYTHONDONTWRITEBYTECODE]"; exit {servers};; '
        f'*junitxml=*beside-actors*) echo "beside [$PYTHONDONTWRITEBYTECODE]"; exit {actors};; '
        f"*junitxml=*beside*) exit {others};; esac"
    )
    done = make("test", tmp_path, {"python": lines, "pyright": f"echo types; exit {types}", "ruff": ""})
    assert (done.returncode == 0) is is_right
    assert [line for line in done.stdout.splitlines() if "[]" in line] == ["servers []", "beside []"]
    assert ("types" in done.stdout) is (types != 0)


def test_every_test_without_servers_is_in_one_group(tmp_path: Path) -> None:
    """What the run with servers leaves out runs beside it, once."""
    done = make("test", tmp_path, {"python": 'case "$*" in *pytest*) echo "run $*";; esac', "pyright": "", "ruff": ""})
    runs = [line.split() for line in done.stdout.splitlines() if line.startswith("run ")]
    (servers,) = [run for run in runs if any(word.startswith("--ignore=tests/actors") for word in run)]
    left_out = {word.removeprefix("--ignore=") for word in servers if word.startswith("--ignore=")}
    beside = [word for run in runs if run is not servers for word in run if word.startswith("tests/")]
    assert sorted(beside) == sorted(left_out - {"tests/gpu", "tests/long", "tests/clients"})


@pytest.mark.parametrize("drills", [0, 5])
@pytest.mark.parametrize(("seeds", "servers", "is_right"), [(0, 0, True), (1, 0, False), (0, 1, False), (5, 5, True)])
def test_seeds_run_beside_all_others_and_all_have_to_pass(
    tmp_path: Path, seeds: int, drills: int, servers: int, is_right: bool
) -> None:
    """5 is what pytest ends with where ARGS selects no test."""
    lines = (
        f'case "$*" in *loadgroup*) echo seeds; exit {seeds};; *loadfile*) echo servers; exit {servers};; '
        f"*pytest*) echo drills; exit {drills};; esac"
    )
    done = make("test-long", tmp_path, {"python": lines})
    assert (done.returncode == 0) is is_right
    runs = [line for line in done.stdout.splitlines() if line in ("seeds", "drills", "servers")]
    assert runs == ["drills", "servers", "seeds"]


def test_a_drill_that_fails_ends_the_seeds_and_there_are_no_servers(tmp_path: Path) -> None:
    """The seeds have begun: here they would never end."""
    has_begun = tmp_path / "begun"
    os.mkfifo(has_begun)
    seeds, drills = f"echo > {has_begun}; while :; do sleep 1; done", f"cat {has_begun}; exit 1"
    lines = f'case "$*" in *loadgroup*) {seeds};; *loadfile*) echo servers;; *pytest*) {drills};; esac'
    done = make("test-long", tmp_path, {"python": lines})
    assert done.returncode != 0
    assert "servers" not in done.stdout


def report(path: Path, begin: str, took_s: float, tests_s: list[float]) -> str:
    cases = "".join(f'<testcase classname="tests.{path.stem}" name="test_{at}" time="{s}"/>' for at, s in enumerate(tests_s))
    path.write_text(f'<testsuites><testsuite time="{took_s}" timestamp="{begin}">{cases}</testsuite></testsuites>')
    return str(path)


def test_runs_beside_each_other_took_as_long_as_from_the_first_begin_to_the_last_end(tmp_path: Path) -> None:
    one = report(tmp_path / "one.xml", "2026-11-29T10:00:00.000000+00:00", 60.0, [float(n) for n in range(8)])
    other = report(tmp_path / "other.xml", "2026-11-29T10:00:30.000000+00:00", 90.0, [0.5, 6.5, 8.0])
    head, *lines = slowest([one, other])
    assert head.startswith("11 tests in 2.0 minutes")
    assert [line.split() for line in lines[:2]] == [["8.00", "tests.other::test_2"], ["7.00", "tests.one::test_7"]]
    assert len(lines) == 10


@pytest.mark.parametrize(("n_failed", "says"), [(0, "6 passed, 0 failed, 2 skipped"), (1, "3 passed, 1 failed, 1 skipped")])
@pytest.mark.parametrize(("test_min", "until_min"), [(12, 12 + 37), (30, 60)])
def test_continuous_integration_counts_both_and_bounds_the_time(
    tmp_path: Path, n_failed: int, says: str, test_min: int, until_min: int
) -> None:
    """Where `make test` fails there is no `make test-long`, which alone has a time after which no test begins."""
    (tmp_path / ".ci").mkdir()
    shutil.copy2(MAKEFILE.parent / ".ci" / "run", tmp_path / ".ci")
    summary = f"===== {n_failed} failed, 3 passed, 1 skipped in 61.20s (0:01:01) ====="
    ended = tmp_path / "ended"
    for name, script in {
        "make": f'touch {ended}; echo "$1 until ${{TEST_UNTIL_S:-ever}}"; echo "{summary}"; exit {n_failed}',
        "date": f"[ -e {ended} ] && echo {1_000_000 + test_min * 60} || echo 1000000",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("TEST_UNTIL_S", None)  # this test may be one of such a run
    command = [str(tmp_path / ".ci" / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (n_failed, says)
    said = dict(line.split(" until ") for line in lines if " until " in line)
    assert said.pop("test") == "ever"
    assert said == ({} if n_failed else {"test-long": str(1_000_000 + until_min * 60)})
