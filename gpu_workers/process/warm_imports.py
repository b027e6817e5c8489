"""The imports of a spare rank that waits for its spawn spec: torch and the whole engine. They take most of the time of a start.

Nothing here may touch a device: a spare holds no model, no device memory and no device context. A test checks this.
"""

from __future__ import annotations

import importlib

_RUNNER = "gpu_workers.runner"


def import_engine(device: str) -> None:
    """Import what `load_model_runner` uses on "cpu" or "cuda"."""
    importlib.import_module(f"{_RUNNER}.model_loading")
    importlib.import_module(f"{_RUNNER}.backend").import_backend(device)
