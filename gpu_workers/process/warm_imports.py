"""What a spare rank imports before it has a birth: torch and all of the engine, most of the seconds of a start.

Nothing here may touch a device: a spare holds no model, no memory of a device and no context on it. A test looks.
"""

from __future__ import annotations

import importlib

_ENGINE = "gpu_workers.runner.model_loading"
_CUDA = ("gpu_workers.graphs.cuda_graphs", "gpu_workers.cuda.ops", "gpu_workers.cuda.triton_attention")  # these bring triton


def import_engine(device: str) -> None:
    """Import what `load_model_runner` uses on "cpu" or "cuda"."""
    for module in (_ENGINE, *(_CUDA if device == "cuda" else ())):
        importlib.import_module(module)
