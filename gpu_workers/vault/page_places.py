"""What a rank has for pages that leave its device: places, each for one page. `HostPages` has them on CPU cores."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gpu_workers.vault.region import Region


class PagePlaces(Protocol):
    """Called on the step thread: what it does counts as done after all launched plans, and before any later one."""

    region: Region  # all that is at the places, with hashes and checksums; the places are empty where it is zero

    def store(self, pages: np.ndarray, places: np.ndarray, hashes: np.ndarray) -> None:
        """Copy pages to places, in order. Args: [n] each; hashes: of their contents. Raises: ValueError for an unknown page or
        place."""
        ...

    def load(self, places: np.ndarray, pages: np.ndarray, hashes: np.ndarray) -> list[int]:
        """Copy places to pages. Returns the indices of those that hold no content of the expected hash: their pages are
        undefined, and the places are empty. Args and errors as of `store`."""
        ...

    def clear(self) -> None:
        """Forget all contents."""
        ...
