"""In which form the pages of a rank lie in its host tier: how many there are, and the places themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_workers.pages.adaptive_pages import AdaptivePages, count_places
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

    @property
    def place_bytes(self) -> int:
        """Bytes of a page as the disk gets it."""
        return self.page_bytes if self.form is None else self.form.place_bytes

    @property
    def n_places(self) -> int:
        """Number of pages that the tier holds."""
        if self.form is not None and self.is_adaptive:
            return count_places(self.n_bytes, self.form)
        return self.n_bytes // self.place_bytes

    def make_places(self, pages: np.ndarray, n_places: int) -> PagePlaces:
        """The places. pages: as of `HostPages`; n_places: of the rank of the gang that has fewest. Raises: OSError."""
        if self.form is not None and self.is_adaptive:
            return AdaptivePages(pages, n_places, self.n_bytes, self.form)
        return HostPages(pages, n_places, self.form)
