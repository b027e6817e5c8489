"""Pages of the hash chain, compressed for its host tier: the first state, and the tokens between the others. Exact.

So tests with this model see every way in which a tier may lose or mistake a page, and no rounding.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpu_workers.hash_chain import STEP, mix_array, unmix_array
from gpu_workers.vault.place_format import PlaceFormat
from messages.steps import PAGE_TOKENS


class ChainPlaces(PlaceFormat):
    """A page is the state after each of its tokens, uint64 [PAGE_TOKENS]."""

    page_bytes = PAGE_TOKENS * 8
    place_bytes = 8 + PAGE_TOKENS * 4  # whole words, as GPUs take checksums of; the last four bytes are zeros

    def compress(self, page: np.ndarray, place: np.ndarray) -> None:
        states = page.view(np.uint64)
        place[:8] = page[:8]
        place[8:-4] = (unmix_array(states[1:] - states[:-1] * np.uint64(STEP)) - np.uint64(1)).astype(np.uint32).view(np.uint8)
        place[-4:] = 0

    def expand(self, place: np.ndarray, page: np.ndarray) -> None:
        states = page.view(np.uint64)
        states[0] = place[:8].copy().view(np.uint64)[0]
        mixed = mix_array(place[8:-4].copy().view(np.uint32).astype(np.uint64) + np.uint64(1))
        for before, index in pairwise(range(PAGE_TOKENS)):
            states[index : index + 1] = states[before:index] * np.uint64(STEP) + mixed[before:index]
