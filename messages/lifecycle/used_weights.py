"""Which safetensors files in a model's folder are its weights: what is loaded, and what makes it the same model."""

from __future__ import annotations

import json
from pathlib import Path

INDEX = "model.safetensors.index.json"
_ONLY_FILE = "model.safetensors"


def used_weights(folder: Path) -> list[Path]:
    """The safetensors files of a folder that are loaded, in the order of their names: those that its index names; without an
    index the file with the usual name, else all of them. One that the index names may be missing.

    Raises: OSError, ValueError when the index cannot be read."""
    if (folder / INDEX).is_file():
        names = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        try:
            return [folder / name for name in sorted(set(names["weight_map"].values()))]
        except (AttributeError, KeyError, TypeError):
            raise ValueError(f"{folder / INDEX}: weight_map: expected file names by tensor, got something else") from None
    usual = folder / _ONLY_FILE
    return [usual] if usual.is_file() else sorted(folder.glob("*.safetensors"))
