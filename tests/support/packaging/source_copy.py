"""The files of this source tree, and a wheel that is built from a copy of them without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[3]
_BUILD_S = 240.0
_NOT_OURS = {".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist"}
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


@dataclass(frozen=True)
class Distributions:
    """What is in a source distribution, relative to its root, and the wheel that was built from that."""

    sources: frozenset[str]
    wheel: Path


def source_files() -> list[str]:
    """Every file of this tree that belongs to the project, relative to it: by git, or all if there is no git."""
    command = ["git", "-C", str(REPO), "ls-files", "--cached", "--others", "--exclude-standard"]
    has_git = (REPO / ".git").exists() and shutil.which("git") is not None
    if has_git:
        names = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        return sorted(name for name in names if (REPO / name).is_file() and not (REPO / name).is_symlink())
    found = [path.relative_to(REPO) for path in REPO.rglob("*") if path.is_file()]
    return sorted(path.as_posix() for path in found if not _is_foreign(path))


def _is_foreign(path: Path) -> bool:
    made = {"PKG-INFO", "setup.cfg"}  # by setuptools, in a source distribution
    return bool(_NOT_OURS & set(path.parts)) or path.parts[0].endswith(".egg-info") or path.as_posix() in made


def build_distributions(folder: Path) -> Distributions:
    """Build a source distribution from a copy of this tree, and a wheel from what that holds."""
    copy = folder / "copy"
    for name in source_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPO / name, copy / name)
    sdist = _built("build_sdist", copy, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    sources = frozenset(path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file())
    return Distributions(sources, _built("build_wheel", unpacked, folder))


def _built(how: str, source: Path, folder: Path) -> Path:
    target = folder / how
    target.mkdir()
    command = [sys.executable, "-c", _BUILD, how, str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built
