"""Pins memory of the host for a GPU, by CUDA's driver. The runtime's call would leave its error for whoever asks next."""

from __future__ import annotations

from ctypes import c_size_t, c_uint, c_void_p

import torch

from gpu_workers.pages.pinned_places import Pinning
from gpu_workers.vault.cuda_library import CudaLibrary

_ANY_CONTEXT = 1  # CU_MEMHOSTREGISTER_PORTABLE
_ARGUMENTS = {"cuMemHostRegister_v2": (c_void_p, c_size_t, c_uint), "cuMemHostUnregister": (c_void_p,)}


class CudaPinning(Pinning):
    """`device`: the GPU that copies. Memory that is not unpinned is pinned until this process ends."""

    def __init__(self, device: torch.device) -> None:
        """Raises: CudaError without a driver."""
        self._device, self._library = device, CudaLibrary(_ARGUMENTS)

    def pin(self, address: int, n_bytes: int) -> None:
        """As of `Pinning`, on any thread. Raises: CudaError."""
        torch.cuda.set_device(self._device)
        torch.cuda.mem_get_info(self._device)  # makes the GPU's context that of this thread
        self._library.call("cuMemHostRegister_v2", address, n_bytes, _ANY_CONTEXT)

    def unpin(self, address: int) -> None:
        """As of `Pinning`, on any thread. Raises: CudaError."""
        torch.cuda.set_device(self._device)
        self._library.call("cuMemHostUnregister", address)
