"""Memory of this process at a fixed address, whose pages can be exchanged for shared memory without moving.

Kernels and recorded programs keep addresses, and a rank warms up before it may touch the memory of the gang before it. So a
region begins as private memory, and `share` puts shared memory in its place, at the same address (mmap with MAP_FIXED).
`cuda_region.py` does the same on GPUs.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from contextlib import suppress

from gpu_workers.large_pages import LARGE_PAGE_BYTES, collapse
from gpu_workers.vault.region import Region

_MAP_FIXED = 0x10
_REMOVE = 9  # MADV_REMOVE: the memory leaves the file too, which then has a hole; since Linux 3.5
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: the kernel makes the pages now; since Linux 5.14
_SEAL_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE: nobody can write or map to write; the present mappings stay
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


class HostRegion(Region):
    """`n_bytes` of zeroed memory that begins where a large page can. `buffer` is the memory; the kernel zeroes each piece when
    it is first touched."""

    def __init__(self, n_bytes: int) -> None:
        """Reserve `n_bytes`. Raises: OSError when the machine has no memory for them."""
        self.n_bytes, self._is_shared = n_bytes, False
        whole = mmap.mmap(-1, n_bytes + LARGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        skipped = -ctypes.addressof(ctypes.c_char.from_buffer(whole)) % LARGE_PAGE_BYTES
        self.buffer = memoryview(whole)[skipped : skipped + n_bytes]
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))

    def make(self) -> int:
        """A new zeroed file in memory, of the region's size, which nobody can change: who maps it is not ended by a shorter
        one. Returns its descriptor, which the caller closes. Raises: OSError."""
        descriptor = os.memfd_create("device-memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, self.n_bytes)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def use_large_pages(self) -> None:
        """Ask the kernel for large pages: with small ones products of a bfloat16 model were a tenth slower. Other threads may
        write to the memory meanwhile."""
        for first in range(0, self.n_bytes - LARGE_PAGE_BYTES + 1, LARGE_PAGE_BYTES):
            self.buffer[first]  # read it: the kernel makes no large page where there is none at all
            collapse(self._address + first)

    def touch(self, first_byte: int, n_bytes: int) -> bool:
        """Let the kernel make the pages of a part of the memory, which keeps its content. Older kernels do nothing. Returns
        False if the kernel has no memory for them: a write there would end this process."""
        skipped = (self._address + first_byte) % mmap.PAGESIZE  # madvise takes whole pages of the system
        if not _libc.madvise(self._address + first_byte - skipped, n_bytes + skipped, _POPULATE_WRITE):
            return True
        return ctypes.get_errno() == errno.EINVAL

    def keep_from_children(self) -> None:
        """A process that is forked does not get this memory. Else the first write after a fork would give this process another
        page than the one to which a device copies. Call it when the memory stays what it is."""
        _libc.madvise(self._address, self.n_bytes, mmap.MADV_DONTFORK)

    def share(self, descriptor: int, is_read_only: bool = False) -> None:
        """Map the memory behind this descriptor in place of the region's own. Raises: OSError, with nothing changed; ValueError
        when the memory is smaller than the region."""
        size = os.fstat(descriptor).st_size
        if size < self.n_bytes:
            raise ValueError(f"shared memory: expected at least {self.n_bytes} bytes, got {size}")
        protection, flags = mmap.PROT_READ | (0 if is_read_only else mmap.PROT_WRITE), mmap.MAP_SHARED | _MAP_FIXED
        if _libc.mmap(self._address, self.n_bytes, protection, flags, descriptor, 0) == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._is_shared = True

    def give_back(self, first_byte: int, n_bytes: int) -> None:
        """As `Region.give_back`. The system takes whole pages of its own; what lies beside these is filled with zeros. Raises:
        ValueError when that is no part of the region."""
        if not 0 <= first_byte <= first_byte + n_bytes <= self.n_bytes:
            raise ValueError(f"bytes: expected a part of {self.n_bytes}, got {n_bytes} from {first_byte} on")
        end_byte = first_byte + n_bytes
        first_whole = min(-(-first_byte // mmap.PAGESIZE) * mmap.PAGESIZE, end_byte)
        end_whole = max(end_byte // mmap.PAGESIZE * mmap.PAGESIZE, first_whole)
        advice = _REMOVE if self._is_shared else mmap.MADV_DONTNEED
        if end_whole > first_whole and _libc.madvise(self._address + first_whole, end_whole - first_whole, advice):
            end_whole = first_whole  # the system keeps it, for example because it is locked
        self._zero(first_byte, first_whole)
        self._zero(end_whole, end_byte)

    def _zero(self, first_byte: int, end_byte: int) -> None:
        ctypes.memset(self._address + first_byte, 0, end_byte - first_byte)

    def finish(self, descriptor: int) -> None:
        self.share(descriptor, is_read_only=True)
        with suppress(OSError):  # Linux before 5.1
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
