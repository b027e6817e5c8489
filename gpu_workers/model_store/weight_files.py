"""Which files of a model's folder hold its weights. Without torch, so that the supervisor can ask before it starts anything."""

from __future__ import annotations

import json
from pathlib import Path


class WeightsError(ValueError):
    """The checkpoint does not fit the config, or has files missing; the text names each tensor or file."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: those that its index names, else all of them.

    Raises: WeightsError if one is missing, or if there is none."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in files if not path.is_file()]
    if missing or not files:
        got = f"a folder without {', '.join(missing)}" if missing else "a folder that has none"
        raise WeightsError(f"{folder}: expected weights in .safetensors files, got {got}")
    return files
