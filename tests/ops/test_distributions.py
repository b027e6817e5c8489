"""What the source distribution and the wheel hold, compared with the source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from supervisor.host_files.folder import host_files
from tests.support.architecture.source_tree import PRODUCT
from tests.support.packaging.source_copy import REPO, Distributions, build_distributions, source_files

pytestmark = pytest.mark.slow
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULE, HOST_FILES = "tardigrade_serve.py", "supervisor/host_files/ops"
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Both, from this tree."""
    return build_distributions(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def unzipped(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer does."""
    folder = tmp_path_factory.mktemp("unzipped")
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(folder)
    return folder


def metadata(unzipped: Path) -> Message:
    """What the wheel says of itself."""
    (path,) = unzipped.glob("*.dist-info/METADATA")
    return Parser().parsestr(path.read_text(encoding="utf-8"))


def test_the_source_distribution_holds_the_repository(built: Distributions) -> None:
    made = {name for name in built.sources if name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name}
    assert built.sources - made == set(source_files())


def test_the_wheel_holds_every_file_of_the_product_and_nothing_else(unzipped: Path) -> None:
    """Files that are no Python too: what is read at run time lies beside its readers, or is a file for operators."""
    held = {path.relative_to(unzipped).as_posix() for path in unzipped.rglob("*") if path.is_file()}
    of_product = {name for name in source_files() if name == MODULE or name.partition("/")[0] in PRODUCT}
    for_operators = {f"{HOST_FILES}/{file.name}" for file in host_files()}
    assert {name for name in held if ".dist-info/" not in name} == of_product | for_operators
    assert {"grafana", "prometheus", "systemd"} <= {file.room for file in host_files()}


def test_all_files_of_ops_that_are_no_python_are_for_operators_but_those_of_measurements() -> None:
    names = [name.partition("/")[2] for name in source_files() if name.startswith("ops/")]
    wanted = [name for name in names if name == "docker/trim.py" or not name.endswith(".py")]  # the image runs it
    assert [file.name for file in host_files()] == [name for name in wanted if not name.startswith(("bench/", "gpu/"))]


def test_the_wheel_alone_has_both_commands_and_writes_out_what_the_checkout_has(unzipped: Path, tmp_path: Path) -> None:
    (path,) = unzipped.glob("*.dist-info/entry_points.txt")
    named = dict(re.findall(r"^(\w+) = tardigrade_serve:(\w+)$", path.read_text(), re.MULTILINE))
    assert named == {"supervisor": "supervisor", "tardigrade": "tardigrade"}
    script = "import sys, tardigrade_serve; sys.argv[1:] = {!r}; tardigrade_serve.{}()"
    said = []
    for command in named.values():
        for arguments in (["--version"], ["config", "files", "written"]):
            done = subprocess.run(
                [sys.executable, "-c", script.format(arguments, command)],
                cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(unzipped)}, capture_output=True, text=True,
                timeout=DEADLINE_S, check=True,
            )  # fmt: skip
            said.append(done.stdout)
    assert said[0] == said[2] == f"Tardigrade {PROJECT['version']}\n"
    assert said[1].splitlines() == [f"written/{file.name}" for file in host_files()]
    assert said[3] == "", "they are there already"
    assert [(tmp_path / "written" / file.name).read_bytes() for file in host_files()] == [f.content() for f in host_files()]


def test_heavy_things_are_extras_and_one_extra_has_all_that_a_server_can_use(unzipped: Path) -> None:
    described = metadata(unzipped)
    assert described["Version"] == PROJECT["version"]
    assert set(described.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    of_checkout = {"test", "bench", "all"}
    extras = sorted(set(PROJECT["optional-dependencies"]) - of_checkout)
    assert PROJECT["optional-dependencies"]["all"] == [f"{PROJECT['name']}[{','.join(extras)}]"]
