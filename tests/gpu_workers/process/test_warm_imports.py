"""What a spare rank has in advance: the whole engine, and no device."""

from __future__ import annotations

import subprocess
import sys

DEADLINE_S = 120.0


def imported(script: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return done.stdout.strip()


def test_nothing_of_the_engine_is_left_to_import() -> None:
    script = (
        "import sys; from gpu_workers.process.warm_imports import import_engine;"
        "import_engine('cpu'); known = set(sys.modules);"
        "from gpu_workers.runner.model_loading import load_model_runner;"
        "print('torch' in known, 'safetensors' in known, set(sys.modules) - known, 'triton' in known)"
    )
    assert imported(script) == "True True set() False"
