"""What a start on a GPU can make beside its imports: CUDA's context, and Triton's digest of itself.

Both take some tenths of a second in libraries that let other threads run; `import torch` takes seconds and does not. Nothing of
torch is imported here, and Triton by its thread alone.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from ctypes import POINTER, byref, c_int, c_void_p

from gpu_workers.vault.cuda_library import CudaError, CudaLibrary

_CALLS = {
    "cuInit": (c_int,),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
}


def begin_context(device_index: int) -> threading.Thread:
    """Make the context of a device, which torch will use, in a thread. Where that fails, torch says why when it tries."""
    return _started(lambda: _retain_context(device_index), "cuda context")


def begin_digest() -> threading.Thread:
    """Make Triton's digest of itself in a thread. It is a part of the name of each compiled kernel, and made once in a process
    from all bytes of Triton's library. Where another release keeps it elsewhere, the first kernel makes it."""
    return _started(_make_digest, "triton digest")


def _started(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _retain_context(device_index: int) -> None:
    """Nobody releases it: a rank needs its context until it ends."""
    with suppress(CudaError):
        driver, device, context = CudaLibrary(_CALLS), c_int(), c_void_p()
        driver.call("cuInit", 0)
        driver.call("cuDeviceGet", byref(device), device_index)
        driver.call("cuDevicePrimaryCtxRetain", byref(context), device)


def _make_digest() -> None:
    with suppress(ImportError, AttributeError, OSError):
        importlib.import_module("triton.runtime.cache").triton_key()
