"""How a page of the device lies at a place of the host tier, where that is not the page's own form."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class PlaceFormat(Protocol):
    """Compresses whole pages. It has no state that changes, so any thread may use it."""

    page_bytes: int  # of a page of the device
    place_bytes: int  # of the same page compressed; fewer

    def compress(self, page: np.ndarray, place: np.ndarray) -> None:
        """Write the compressed form of a page. Args: uint8 [page_bytes], and uint8 [place_bytes], which is overwritten."""
        ...

    def expand(self, place: np.ndarray, page: np.ndarray) -> None:
        """Write the page that a compressed form stands for. Arguments as of `compress`; the page is overwritten."""
        ...
