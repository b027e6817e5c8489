"""In which form the pages of a rank lie in its host tier: how many there are, and the places themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_workers.pages.adaptive_pages import AdaptivePages, count_places
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.framed_places import FramedPlaces, frame_sizes
from gpu_workers.pages.pinned_places import PLACE_ALIGNED_BYTES, PinnedPlaces, Pinning
from gpu_workers.pages.queued_places import QueuedPlaces
from gpu_workers.pages.sized_pages import SizedHostPages
from gpu_workers.vault.host_pages import HostPages
from gpu_workers.vault.page_places import PagePlaces
from gpu_workers.vault.place_format import PlaceFormat


@dataclass(frozen=True)
class HostForm:
    """A host tier of `n_bytes` for pages of `page_bytes`. form None: places have the bytes of pages."""

    n_bytes: int
    page_bytes: int
    form: PlaceFormat | None = None
    is_adaptive: bool = False  # only cold pages are compressed
    is_pinned: bool = False  # on a GPU: each place begins where a page of the kernel does
    least_bytes: int = 0  # in use at the least, where the size follows the load; 0: it does not

    @property
    def place_bytes(self) -> int:
        """Bytes of a page as the disk gets it."""
        return self.page_bytes if self.form is None else self.form.place_bytes

    @property
    def n_places(self) -> int:
        """Number of pages that the tier holds."""
        if self.form is not None and self.is_adaptive:
            return frame_sizes(self.n_bytes, self.form).n_places if self.is_pinned else count_places(self.n_bytes, self.form)
        aligned_bytes = PLACE_ALIGNED_BYTES if self.is_pinned else 1
        return self.n_bytes // (-(-self.place_bytes // aligned_bytes) * aligned_bytes)

    @property
    def n_least_places(self) -> int:
        """Places in use at the least, where their number follows the load; 0: all of them, always."""
        return min(-(-self.least_bytes // self.place_bytes), self.n_places)

    def make_places(self, pages: np.ndarray, n_places: int) -> PagePlaces:
        """The places. pages: as of `HostPages`; n_places: of the rank of the gang that has fewest. Raises: OSError."""
        if self.form is not None and self.is_adaptive:
            return AdaptivePages(pages, n_places, self.n_bytes, self.form)
        if self.least_bytes:
            return SizedHostPages(pages, n_places, self.form)
        return HostPages(pages, n_places, self.form)

    def queue_places(self, copies: CopyQueue, n_places: int, pinning: Pinning) -> QueuedPlaces | FramedPlaces:
        """The places of a GPU. copies: of its pages, by a stream that compresses as the form does; n_places: as of
        `make_places`. Raises: OSError."""
        if self.form is not None and self.is_adaptive:
            return FramedPlaces(frame_sizes(self.n_bytes, self.form), n_places, self.form, copies, pinning)
        memory = PinnedPlaces(n_places, self.place_bytes, pinning, is_compressed=self.form is not None)
        return QueuedPlaces(memory, copies)
