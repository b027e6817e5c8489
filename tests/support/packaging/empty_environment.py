"""A new virtual environment in which pip installs a wheel with all that it asks for, as a newcomer does.

PyTorch alone is not downloaded again, because it takes gigabytes with CUDA: links lead to the one of these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

INSTALL_S = 900.0
_OF_PYTORCH = ("nvidia-", "triton", "cuda-")


class EmptyEnvironment:
    """The environment. `programs`: the folder with its commands."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._venv = folder, folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(self._venv)], timeout=INSTALL_S, check=True)
        self.programs = self._venv / "bin"
        shared = folder / "pytorch"
        _link_pytorch(shared)
        (packages,) = self._venv.glob("lib/python*/site-packages")
        (packages / "pytorch.pth").write_text(f"{shared}\n")

    def install(self, *what: str) -> None:
        """Let pip install this from wherever it is set up to ask."""
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what, timeout_s=INSTALL_S)

    def command(self, program: str) -> list[str]:
        """A program of the environment, run in an empty folder that is near no source tree, with an empty cache folder."""
        empty = self._folder / "empty"
        empty.mkdir(exist_ok=True)
        cache = f"TARDIGRADE_CACHE={self._folder / 'cache'}"
        return ["env", "--unset=PYTHONPATH", f"--chdir={empty}", cache, str(self.programs / program)]

    def run(self, program: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run a program of the environment to its end; returns what it prints. Raises: AssertionError with its errors."""
        done = subprocess.run(
            [*self.command(program), *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _link_pytorch(folder: Path) -> None:
    """Make a folder with links to PyTorch and to the libraries of GPUs that it needs, and nothing else."""
    folder.mkdir()
    todo, done = ["torch"], set[str]()
    while todo:
        name = todo.pop()
        done.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            source = Path(str(found.locate_file(top))).resolve()
            if source.exists() and not (folder / top).exists():
                os.symlink(source, folder / top)
        needed = [Requirement(text).name.lower() for text in found.requires or ()]
        todo += [one for one in needed if one.startswith(_OF_PYTORCH) and one not in done]
