"""A number on the host that streams of a CUDA device wait for, without a thread of the host that waits for the device.

Source: CUDA driver API, "Stream Memory Operations".
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch

_LIBRARY = "libcuda.so.1"
_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ, which also holds after an overflow
_MODULUS = 1 << 32


class HostNumber:
    """Rises from 0. One thread queues waits, another one may set it."""

    def __init__(self) -> None:
        self._memory = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._number = self._memory.numpy().view(np.uint32)
        self._wait = ctypes.CDLL(_LIBRARY).cuStreamWaitValue32_v2
        self._wait.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)

    def make_wait(self, stream: torch.cuda.Stream, number: int) -> None:
        """What is queued on the stream from now on waits until this number is set. Raises: RuntimeError."""
        status = self._wait(stream.cuda_stream, self._memory.data_ptr(), number % _MODULUS, _AT_LEAST)
        if status:
            raise RuntimeError(f"cuStreamWaitValue32: expected status 0, got {status}")

    def set(self, number: int) -> None:
        """Let everything go on that waits for this number or a smaller one."""
        self._number[0] = number % _MODULUS
