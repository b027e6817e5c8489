"""What a spare rank has in advance: the whole engine, and no device."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEADLINE_S = 120.0


def imported(script: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return done.stdout.strip()


def test_nothing_of_the_engine_is_left_to_import() -> None:
    script = (
        "import sys; from gpu_workers.warm_imports import import_engine; import_engine('cpu'); known = set(sys.modules);"
        "from gpu_workers.model_loading import load_model_runner;"
        "print('torch' in known, 'safetensors' in known, set(sys.modules) - known, 'triton' in known)"
    )
    assert imported(script) == "True True set() False"


@pytest.mark.gpu
def test_a_spare_of_a_gpu_has_triton_and_no_context() -> None:
    script = (
        "import sys, torch; from gpu_workers.warm_imports import import_engine; import_engine('cuda');"
        "print('triton' in sys.modules, torch.cuda.is_initialized())"
    )
    assert imported(script) == "True False"
