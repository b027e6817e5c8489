"""What pyproject.toml cannot say: the files of ops/ that are no Python go into the wheel, inside the package that writes them.

In a checkout they lie in ops/ alone. The load tools in ops/bench and the scripts of measurements in ops/gpu stay there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

OPS = Path(__file__).parent / "ops"
PLACE = "supervisor/host_files/ops"  # below the root of the wheel; supervisor/host_files/folder.py looks there
_NOT_FOR_OPERATORS = ("bench", "gpu")
_RUN_BY_THE_IMAGE = "docker/trim.py"  # the only file of Python there


def host_files() -> list[Path]:
    """The files for operators, relative to ops/."""
    files = (path.relative_to(OPS) for path in OPS.rglob("*") if path.is_file())
    return sorted(path for path in files if _is_wanted(path))


def _is_wanted(path: Path) -> bool:
    is_python = path.suffix in (".py", ".pyc") or "__pycache__" in path.parts
    is_wanted = not is_python or path.as_posix() == _RUN_BY_THE_IMAGE
    return len(path.parts) > 1 and path.parts[0] not in _NOT_FOR_OPERATORS and is_wanted


class BuildWithHostFiles(build_py):
    """Copies them beside the packages. An editable installation needs no copy."""

    def run(self) -> None:
        """Build as setuptools does, then copy."""
        super().run()
        if self.editable_mode:
            return
        for file in host_files():
            target = Path(self.build_lib) / PLACE / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(OPS / file, target)


setup(cmdclass={"build_py": BuildWithHostFiles})
