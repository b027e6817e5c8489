"""What a model folder says about its model: family, size, type of its numbers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_MOST_HEADER_BYTES = 64 << 20
_NAMES = ((1e9, "B"), (1e6, "M"), (1e3, "K"))


@dataclass(frozen=True)
class ModelCard:
    """Facts about a model; 0 and "" where its folder says nothing. `dtype`: of most of its numbers, by safetensors' name."""

    family: str = ""
    dtype: str = ""
    n_parameters: int = 0
    n_bytes: int = 0

    @property
    def parameter_size(self) -> str:
        """The number of parameters, as it is usually written: 134.5M."""
        for unit, name in _NAMES:
            if self.n_parameters >= unit:
                return f"{self.n_parameters / unit:.1f}{name}"
        return str(self.n_parameters)


@lru_cache(maxsize=2)  # the model that generates, and the embedding model
def model_card(model_folder: str) -> ModelCard:
    """The card of a model folder, from config.json and the heads of its safetensors files. Blocks for some milliseconds.
    What cannot be read is left out.
    """
    folder = Path(model_folder)
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    n_by_dtype: dict[str, int] = {}
    for file in files:
        for tensor in _head_of(file).values():
            if isinstance(tensor, dict) and isinstance(tensor.get("shape"), list):
                dtype = str(tensor.get("dtype", ""))
                n_by_dtype[dtype] = n_by_dtype.get(dtype, 0) + math.prod(tensor["shape"])
    return ModelCard(
        str(_config_of(folder).get("model_type") or ""),
        max(n_by_dtype, key=lambda dtype: n_by_dtype[dtype], default=""),
        sum(n_by_dtype.values()),
        sum(file.stat().st_size for file in files),
    )


def _config_of(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}


def _head_of(file: Path) -> dict[str, Any]:
    """The tensors of a safetensors file: type and shape by name."""
    try:
        with file.open("rb") as opened:
            n_bytes = int.from_bytes(opened.read(8), "little")
            head = json.loads(opened.read(n_bytes)) if n_bytes <= _MOST_HEADER_BYTES else {}
    except (OSError, ValueError):
        return {}
    return {name: tensor for name, tensor in head.items() if name != "__metadata__"}
