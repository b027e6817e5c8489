"""The models on this machine that a server can be started with: from packages, from the hub's cache, and GGUF files in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gpu_workers.model_store.gguf_folder import folder_of_gguf
from gpu_workers.model_store.hub_cache.cache_paths import hub_cache, newest_snapshot, repo_folder
from gpu_workers.model_store.hub_cache.resumable import INCOMPLETE
from gpu_workers.model_store.packaged import PACKAGES, package_folder
from gpu_workers.models.resolve import DEFAULT_MODEL, is_default_model

_PREFIX = "models--"
_CONFIG = "config.json"
_FOLDER_IN_PACKAGE = "model"


class ModelSource(Enum):
    """Where a model has come from."""

    PACKAGE = "package"
    HUB = "hub"
    HUB_GGUF = "hub, GGUF"


@dataclass(frozen=True)
class StoredModel:
    """A model that is here, at least in part. `name`: for --model. `path`: its folder, or its GGUF file.

    `n_bytes`: on disk, with the folder that a GGUF file was converted to.
    """

    name: str
    source: ModelSource
    path: Path
    n_bytes: int
    is_whole: bool = True

    @property
    def gguf(self) -> Path | None:
        """Its GGUF file; None if it is a folder."""
        return self.path if self.path.suffix.lower() == ".gguf" else None

    @property
    def folders(self) -> list[Path]:
        """What running servers read of it: its folder, or what its GGUF file is converted to."""
        return [self.path] if self.gguf is None else [folder_of_gguf(self.path, client_name(self.name))]


def client_name(name: str) -> str:
    """The name that clients see of a model: of a GGUF file, its stem."""
    return Path(name).stem if name.lower().endswith(".gguf") else name


def stored_models() -> list[StoredModel]:
    """All of them, sorted by source and name."""
    return [*_packaged(), *sorted(_of_hub(), key=lambda model: model.name)]


def find_stored(name: str) -> StoredModel | None:
    """The model of this name, or another name of the packaged one; None if it is not here."""
    wanted = DEFAULT_MODEL if is_default_model(name) else name
    return next((model for model in stored_models() if model.name == wanted), None)


def bytes_under(path: Path) -> int:
    """Bytes of all files in a folder, or of a file; links are not followed. What is gone meanwhile counts nothing."""
    total = 0
    for one in path.rglob("*") if path.is_dir() else [path]:
        try:
            total += one.stat().st_size if one.is_file() and not (path.is_dir() and one.is_symlink()) else 0
        except OSError:
            continue
    return total


def _packaged() -> Iterator[StoredModel]:
    for name, package in PACKAGES.items():
        folder = package_folder(package)
        if folder is None:
            continue
        path = next((file for file in (*sorted(folder.glob("*.gguf")), folder / _FOLDER_IN_PACKAGE) if file.exists()), folder)
        converted = bytes_under(folder_of_gguf(path, name)) if path.is_file() else 0
        yield StoredModel(name, ModelSource.PACKAGE, path, bytes_under(folder) + converted)


def _of_hub() -> Iterator[StoredModel]:
    for folder in hub_cache().glob(f"{_PREFIX}*--*"):
        name = folder.name.removeprefix(_PREFIX).replace("--", "/", 1)
        snapshot = newest_snapshot(name)
        is_whole = not any((folder / "blobs").glob(f"*{INCOMPLETE}"))
        ggufs = [] if snapshot is None else sorted(snapshot.rglob("*.gguf"))
        for file in ggufs:
            assert snapshot is not None
            n_bytes = file.stat().st_size + bytes_under(folder_of_gguf(file, file.stem)) if file.exists() else 0
            yield StoredModel(f"{name}/{file.relative_to(snapshot)}", ModelSource.HUB_GGUF, file, n_bytes, file.exists())
        if snapshot is not None and (snapshot / _CONFIG).is_file():
            n_bytes = bytes_under(repo_folder(name)) - sum(file.stat().st_size for file in ggufs if file.exists())
            yield StoredModel(name, ModelSource.HUB, snapshot, n_bytes, is_whole and _has_weights(snapshot))
        elif not ggufs and not is_whole:
            yield StoredModel(name, ModelSource.HUB, folder, bytes_under(folder), is_whole=False)


def _has_weights(snapshot: Path) -> bool:
    """Are the files with its weights there? Their content is checked when it is fetched, and at a start."""
    from gpu_workers.model_store.weight_files import WeightsError, weight_files

    try:
        return bool(weight_files(snapshot))
    except (WeightsError, OSError, ValueError, KeyError):
        return False
