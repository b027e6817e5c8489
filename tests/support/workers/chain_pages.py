"""Pages of the hash chain, whose compressed form is exact: any that comes back can be compared."""

from __future__ import annotations

import numpy as np

from gpu_workers.hash_chain import STEP, mix
from messages.steps import PAGE_TOKENS


def chain_page(number: int) -> np.ndarray:
    """The bytes of a page of its own for each number."""
    state, states = mix(number), []
    for index in range(PAGE_TOKENS):
        states.append(state)
        state = (state * STEP + mix((number * 31 + index) % 2**31 + 1)) % 2**64
    return np.array(states, np.uint64).view(np.uint8)


def chain_memory(n_pages: int) -> np.ndarray:
    """Memory for pages: [n_pages, bytes of a page], zeroed."""
    return np.zeros((n_pages, PAGE_TOKENS * 8), np.uint8)
