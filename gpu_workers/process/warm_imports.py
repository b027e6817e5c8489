"""What a spare rank imports before it has a birth: torch and all of the engine, most of the seconds of a start.

Nothing here may touch a device: a spare holds no model, no memory of a device and no context on it. A test looks.
"""

from __future__ import annotations

import importlib

_RUNNER = "gpu_workers.runner"


def import_engine(device: str) -> None:
    """Import what `load_model_runner` uses on "cpu" or "cuda"."""
    importlib.import_module(f"{_RUNNER}.model_loading")
    importlib.import_module(f"{_RUNNER}.backend").import_backend(device)
