"""Gives the memory of pages back to the system. A page that is used again reads as zeros at first."""

from __future__ import annotations

import numpy as np

from gpu_workers.vault.region import Region


def return_pages(region: Region, page_bytes: int, n_pages: int, pages: np.ndarray, first_byte: int = 0) -> None:
    """Give back these of `n_pages` pages of a region, each of `page_bytes`. pages: [n] int32, distinct, in any order.
    first_byte: where page 0 begins.

    Neighbours go back together: the system takes whole pages of its own, and those of a small model are smaller.

    Raises: ValueError for an unknown page, with nothing given back."""
    if not len(pages):
        return
    numbers = np.sort(pages)
    if numbers[0] < 0 or numbers[-1] >= n_pages:
        raise ValueError(f"pages: expected numbers from 0 to {n_pages - 1}, got {numbers[0]} to {numbers[-1]}")
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
        region.give_back(first_byte + int(run[0]) * page_bytes, len(run) * page_bytes)
