"""Memory of this process at a fixed address, whose pages can be exchanged for shared memory without moving.

Kernels and recorded programs keep addresses, and a rank warms up before it may touch the memory of the gang before it. So a
region begins as private memory, and `share` puts shared memory in its place, at the same address (mmap with MAP_FIXED).
`cuda_region.py` does the same on GPUs.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from gpu_workers.vault.region import Region

_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


class HostRegion(Region):
    """`n_bytes` of zeroed memory. `buffer` is the memory; the kernel zeroes each piece when it is first touched."""

    def __init__(self, n_bytes: int) -> None:
        """Raises: OSError when the machine has no memory for it."""
        self.n_bytes = n_bytes
        self.buffer = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))

    def make(self) -> int:
        """See Region."""
        descriptor = os.memfd_create("device-memory", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, self.n_bytes)
        return descriptor

    def share(self, descriptor: int, is_read_only: bool = False) -> None:
        """See Region. Raises: OSError, with nothing changed; ValueError when the memory is smaller than the region."""
        size = os.fstat(descriptor).st_size
        if size < self.n_bytes:
            raise ValueError(f"shared memory: expected at least {self.n_bytes} bytes, got {size}")
        protection, flags = mmap.PROT_READ | (0 if is_read_only else mmap.PROT_WRITE), mmap.MAP_SHARED | _MAP_FIXED
        if _libc.mmap(self._address, self.n_bytes, protection, flags, descriptor, 0) == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
