"""Memory of the host for the places of a GPU's host tier: it can be shared with the next process, and the device copies to and
from it by itself, because the kernel may not move it ("pinned").

To pin gigabytes takes seconds where the memory is new, and a standby that takes over must not wait for that. So a thread pins
it piece by piece, and until it has ended there are no copies. A standby pins nothing before it takes over.

Steps need the driver meanwhile, which does one call at a time. So the kernel makes the pages of a piece before the driver is
called, and after the call the thread pauses for as long as the call took. Without that a server with a tier of 16 GiB had no
step done for seconds, and its worker was killed as stuck.

    tags of all places | place 0 | place 1 | ...          each begins where a page of the kernel does
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Protocol

import numpy as np
import structlog

from gpu_workers.pages.copy_stream import PlaceCopies
from gpu_workers.pages.place_table import TAG_BYTES
from gpu_workers.vault.host_region import HostRegion

PLACE_ALIGNED_BYTES = 4096  # a page of the kernel, where each place begins
_PIECE_BYTES = 32 << 20  # are pinned by one call, during which others to the driver may wait; a copy must lie within one piece


class Pinning(Protocol):
    """Tells the device's driver of memory."""

    def pin(self, address: int, n_bytes: int) -> None:
        """The kernel may not move this memory from now on, and the device may copy to and from it. Raises: OSError when the
        machine refuses that."""
        ...

    def unpin(self, address: int) -> None:
        """What one call of `pin` has pinned from this address on is ordinary memory again. No copy may be on its way."""
        ...


class PinnedPlaces:
    """`n_places` places of one page each. `region`: all of it, which may be exchanged until `open`."""

    def __init__(
        self,
        n_places: int,
        page_bytes: int,
        pinning: Pinning,
        name: str = "host tier",
        *,
        is_compressed: bool = False,
        n_tag_bytes: int = 0,
    ) -> None:
        """page_bytes: of a page, or if it `is_compressed`, of a compressed one; name: of what it is for, in the log;
        n_tag_bytes: 0: those of a `PlaceTable`. Raises: OSError when the machine has no memory for that."""
        n_tag_bytes = n_tag_bytes or n_places * TAG_BYTES
        self.n_places, self.page_bytes, self._is_compressed = n_places, page_bytes, is_compressed
        self._place_bytes = _rounded(page_bytes)
        self._first = _rounded(n_tag_bytes)
        self.region = HostRegion(self._first + n_places * self._place_bytes)
        self.tags = self.region.buffer[:n_tag_bytes]
        whole = np.frombuffer(self.region.buffer, np.uint8, offset=self._first).reshape(n_places, self._place_bytes)
        self.places = whole[:, :page_bytes]  # [n_places, page_bytes] uint8, each contiguous
        self._n_together = max(_PIECE_BYTES // self._place_bytes, 1)  # places that are pinned by one call
        self.span = self._n_together if self._place_bytes == page_bytes else 1  # places that one copy may have
        self._pinning, self._name = pinning, name
        self._pinned: list[int] = []  # addresses of pieces
        self._thread: threading.Thread | None = None
        self.is_ready = False  # the device may copy
        self._log = structlog.get_logger()

    def open(self) -> None:
        """The region stays what it is from now on: begin to pin it. Returns at once."""
        if self._thread is None:
            self.region.keep_from_children()
            self._thread = threading.Thread(target=self._pin, name="pin", daemon=True)
            self._thread.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the memory is pinned or that has failed, after `open`. Returns `is_ready`."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self.is_ready

    def copies(self, pages: np.ndarray, places: np.ndarray) -> PlaceCopies:
        """Copies between these pages and places. Args: [n] each."""
        return PlaceCopies(pages, self.places, places, self.span, self._is_compressed)

    def unpin(self) -> None:
        """The device copies no more; the memory can go. Waits until it is pinned."""
        if self._thread is not None:
            self._thread.join()
        self.is_ready = False
        while self._pinned:
            self._pinning.unpin(self._pinned.pop())

    def _pin(self) -> None:
        began_s = time.monotonic()
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.region.buffer)) + self._first
        try:
            for first in range(0, self.n_places, self._n_together):
                n_bytes = min(self._n_together, self.n_places - first) * self._place_bytes
                self.region.touch(self._first + first * self._place_bytes, n_bytes)
                piece_began_s = time.monotonic()
                self._pinning.pin(address + first * self._place_bytes, n_bytes)
                self._pinned.append(address + first * self._place_bytes)
                time.sleep(time.monotonic() - piece_began_s)
        except OSError as error:
            self._log.error(
                f"there is no {self._name}: its memory cannot be pinned", bytes=self.region.n_bytes, error=str(error)
            )
            return
        self.is_ready = True
        self._log.info(f"{self._name} ready", places=self.n_places, took_s=round(time.monotonic() - began_s, 3))


def places_in(n_bytes: int, page_bytes: int) -> int:
    """How many places memory of this size has that another process has made as `PinnedPlaces`."""
    n_places = n_bytes // (_rounded(page_bytes) + TAG_BYTES)
    while n_places and _rounded(n_places * TAG_BYTES) + n_places * _rounded(page_bytes) > n_bytes:
        n_places -= 1
    return n_places


def _rounded(n_bytes: int) -> int:
    return -(-n_bytes // PLACE_ALIGNED_BYTES) * PLACE_ALIGNED_BYTES
