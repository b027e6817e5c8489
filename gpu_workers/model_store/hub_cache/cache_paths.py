"""Where the hub's client keeps its files, found without importing the client, which is slow."""

from __future__ import annotations

import os
from pathlib import Path


def hub_cache() -> Path:
    """The folder of the client's cache, by its own environment variables."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def repo_folder(name: str) -> Path:
    """The folder of the model organisation/name there."""
    return hub_cache() / f"models--{name.replace('/', '--')}"


def newest_snapshot(name: str) -> Path | None:
    """The folder of the newest snapshot that is here, with links to its files; None without one."""
    folder = repo_folder(name)
    try:
        snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except OSError:
        return None
    return snapshot if snapshot.is_dir() else None


def cached_file(name: str, file: str) -> Path | None:
    """One file of the newest snapshot; None if it is not here."""
    snapshot = newest_snapshot(name)
    path = None if snapshot is None else snapshot / file
    return path if path is not None and path.is_file() else None
