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


def test_what_a_start_makes_early_is_there_for_torch_and_the_first_kernel() -> None:
    script = (
        "import ctypes; from gpu_workers.cuda.early_start import begin_context, begin_digest;"
        "threads = [begin_context(0), begin_digest()]; [thread.join() for thread in threads];"
        "from triton.runtime.cache import triton_key; flags, is_active = ctypes.c_uint(), ctypes.c_int();"
        "ctypes.CDLL('libcuda.so.1').cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(is_active));"
        "print(triton_key.cache_info().currsize, is_active.value)"
    )
    assert run_script(script) == "1 1"
