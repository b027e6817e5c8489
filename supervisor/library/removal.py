"""Removes a model from this machine: packages, files of the hub from its cache, and what GGUF files were converted to."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpu_workers.model_store.hub_cache.cache_paths import hub_cache, repo_folder
from gpu_workers.model_store.packaged import PACKAGES
from gpu_workers.models.resolve import hub_file
from supervisor.library.packages import remove as remove_package
from supervisor.library.stored_model import ModelSource, StoredModel, bytes_under


def remove(model: StoredModel) -> int:
    """Remove the model; returns the bytes that are free again. Raises: ConfigError, OSError."""
    freed = 0
    if model.gguf is not None and model.is_whole:
        for folder in model.folders:  # before the file, by whose size and time it is found
            freed += _remove_folder(folder)
    match model.source:
        case ModelSource.PACKAGE:
            remove_package(PACKAGES[model.name])
            return model.n_bytes
        case ModelSource.HUB_GGUF:
            return freed + _remove_file(model.path, hub_file(model.name))
        case ModelSource.HUB:
            return freed + _remove_repo(model.name)


def _remove_file(link: Path, named: tuple[str, str] | None) -> int:
    """A file of a snapshot: the link, and the file itself. With the last file of a model all of it goes."""
    blob = link.resolve()
    freed = bytes_under(blob)
    blob.unlink(missing_ok=True)
    link.unlink(missing_ok=True)
    snapshot = link.parent
    has_others = any(path.suffix in (".gguf", ".safetensors") for path in snapshot.rglob("*"))
    return freed + (_remove_repo(named[0]) if named and not has_others else 0)


def _remove_repo(name: str) -> int:
    folder = repo_folder(name)
    shutil.rmtree(hub_cache() / ".locks" / folder.name, ignore_errors=True)
    return _remove_folder(folder)


def _remove_folder(folder: Path) -> int:
    n_bytes = bytes_under(folder)
    if folder.is_dir():
        shutil.rmtree(folder)
    return n_bytes
