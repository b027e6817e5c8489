"""A resolved model, and the cache folder for converted ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpu_workers.model_store.model_config import ModelConfig
from messages.hash_chain import HASH_CHAIN

CACHE_VARIABLE = "TARDIGRADE_CACHE"


class ModelNotFoundError(ValueError):
    """There is no model of this name; the text says which names are possible."""


@dataclass(frozen=True)
class ModelFolder:
    """A model that workers and gateways can open: a folder in Hugging Face's layout, or the hash chain, which has no files."""

    kind: Literal["weights", "hash_chain"]
    name: str  # what clients see
    path: Path | None  # None for the hash chain
    config: ModelConfig | None  # None for the hash chain

    @property
    def setting(self) -> str:
        """The value of `model_folder` in the settings of workers and gateways."""
        return HASH_CHAIN if self.path is None else str(self.path)


def cache_folder() -> Path:
    """Where converted models are kept: $TARDIGRADE_CACHE, else tardigrade in the user's cache folder.

    Raises: FileNotFoundError if the user has no home folder, as one whom the machine does not know."""
    chosen = os.environ.get(CACHE_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tardigrade"
    except RuntimeError:
        raise FileNotFoundError(f"expected HOME or {CACHE_VARIABLE} in the environment, got no home folder") from None
