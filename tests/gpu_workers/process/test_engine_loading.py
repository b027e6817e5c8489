"""What a spare rank has in advance: the whole engine, and no device."""

from __future__ import annotations

import pytest

from tests.support.fresh_interpreter import run_script

pytestmark = pytest.mark.slow


def test_nothing_of_the_engine_is_left_to_import() -> None:
    script = (
        "import sys; from gpu_workers.process.engine_loading import import_engine;"
        "import_engine('cpu'); known = set(sys.modules);"
        "from gpu_workers.runner.model_loading import load_model_runner;"
        "from gpu_workers.runner.backend import cpu_ops; import torch; cpu_ops(torch.float32);"
        "print('torch' in known, 'safetensors' in known, set(sys.modules) - known, 'triton' in known)"
    )
    assert run_script(script) == "True True set() False"
