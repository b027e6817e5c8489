"""What a spare rank of a GPU has in advance: the whole engine and its kernels, and no device."""

from __future__ import annotations

import pytest

from tests.support.fresh_interpreter import run_script

pytestmark = pytest.mark.gpu


def test_a_spare_of_a_gpu_has_triton_and_no_context() -> None:
    script = (
        "import sys, torch; from gpu_workers.process.engine_loading import import_engine; import_engine('cuda');"
        "print('triton' in sys.modules, torch.cuda.is_initialized())"
    )
    assert run_script(script) == "True False"
