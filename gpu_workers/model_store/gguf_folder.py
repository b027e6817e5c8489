"""Where the folder lies to which a GGUF file is converted. It imports little, so that a start that finds it is quick."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gpu_workers.model_store.model_folder import cache_folder

_FORMAT = 1  # raise it when the same file would be converted differently


def folder_of_gguf(path: Path, name: str) -> Path:
    """The folder for the GGUF file `path`, which is complete if it is there. Raises: OSError when the file cannot be read."""
    stat = path.stat()
    identity = f"{_FORMAT}:{path.name}:{stat.st_size}:{stat.st_mtime_ns}"
    return cache_folder() / "models" / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
