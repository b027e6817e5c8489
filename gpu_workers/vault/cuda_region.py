"""Memory of a GPU at a fixed address, whose pages can be exchanged for shared memory without moving.

Captured graphs keep addresses, and a gang captures before it may touch the memory of the gang before it. So a region begins as
one small piece of memory that appears again and again, all over its addresses. What warm-up steps write and read there means
nothing, which does no harm. `share` takes that away and maps the shared memory in its place. So a standby gang needs no second
memory for keys and values.
"""

from __future__ import annotations

import time

from gpu_workers.vault.cuda_driver import CudaError, Driver
from gpu_workers.vault.region import Region

_PIECE_BYTES = 256 << 20
_FREE_WAIT_S = 2.0  # the memory of a process that has just died may come back a little later
_RETRY_S = 0.01


class CudaRegion(Region):
    """`n_bytes` at `address` on the driver's device; see the file's header."""

    def __init__(self, n_bytes: int, driver: Driver) -> None:
        """Reserve addresses for `n_bytes`; one small piece of memory fills them all until `make` or `share`.

        Raises: CudaError when the device has no memory for that piece.
        """
        self.n_bytes = n_bytes
        self._driver = driver
        self._whole_bytes = -(-n_bytes // driver.granularity_bytes) * driver.granularity_bytes
        self.address = driver.reserve(self._whole_bytes)
        self._mapped: list[tuple[int, int]] = []  # address and size of each mapping
        self._map_scratch()

    def make(self) -> int:
        """New zeroed memory of the region's size. Returns its descriptor, which the caller closes. Raises: CudaError when the
        device has no memory for it."""
        handle = self._create()
        try:
            address = self._driver.reserve(self._whole_bytes)
            self._driver.map(address, self._whole_bytes, handle)
            self._driver.zero(address, self._whole_bytes)
            self._driver.unmap(address, self._whole_bytes)
            self._driver.free(address, self._whole_bytes)
            return self._driver.export(handle)
        finally:
            self._driver.release(handle)

    def share(self, descriptor: int, is_read_only: bool = False) -> None:
        """Map the memory behind this descriptor in place of the region's own. After an error the region cannot be used. Raises:
        CudaError."""
        handle = self._driver.adopt(descriptor)
        try:
            self._driver.wait_idle()
            while self._mapped:
                self._driver.unmap(*self._mapped.pop())
            self._driver.map(self.address, self._whole_bytes, handle, is_read_only)
            self._mapped.append((self.address, self._whole_bytes))
        finally:
            self._driver.release(handle)

    def _create(self) -> int:
        end_s = time.monotonic() + _FREE_WAIT_S
        while True:
            try:
                return self._driver.create(self._whole_bytes)
            except CudaError:
                if time.monotonic() >= end_s:
                    raise
            time.sleep(_RETRY_S)

    def _map_scratch(self) -> None:
        rest = self._whole_bytes
        while rest:
            piece_bytes = min(_PIECE_BYTES, rest)
            handle = self._driver.create(piece_bytes)
            first = self.address + self._whole_bytes - rest
            while rest >= piece_bytes:
                at = self.address + self._whole_bytes - rest
                self._driver.map(at, piece_bytes, handle)
                self._mapped.append((at, piece_bytes))
                rest -= piece_bytes
            self._driver.zero(first, piece_bytes)
            self._driver.release(handle)
